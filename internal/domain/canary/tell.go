package canary

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
)

// tellVerdict adds a notice of a gate that has reached its verdict.
func tellVerdict(ctx context.Context, tx *db.Tx, ws tenant.ID, st *state) error {
	does := "It recommends; a person decides."
	if st.alias.GateMode == alias.Auto {
		does = "It acts on it."
	}
	what := map[Verdict]string{Promote: "promotes its canary", RollBack: "rolls its canary back"}[st.epoch.Verdict]
	return notice.Add(ctx, tx, ws, notice.Notice{
		Kind: notice.GateVerdict, Subject: st.alias.Name, Link: "aliases/" + st.alias.Name,
		Title: fmt.Sprintf("The gate of %s %s", st.alias.Name, what),
		Text: fmt.Sprintf("The gate of the alias %s %s: %s instead of %s. %s",
			st.alias.Name, what, st.alias.CanaryModel, st.alias.TargetModel, does),
	})
}
