package canary

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// alarming has a title for each verdict that somebody should look at.
var alarming = map[Verdict]string{
	Paused:   "The gate of %s is paused",
	Promote:  "The gate of %s says: promote the canary",
	RollBack: "The gate of %s says: roll the canary back",
}

// Alarms returns the gates of a workspace that are paused, or have decided.
func (s *Store) Alarms(ctx context.Context, ws tenant.ID) (all []module.Notice, err error) {
	in := s.DB.In(ws)
	names, err := db.Query[string](ctx, in,
		`SELECT name FROM aliases WHERE workspace_id = $1 AND gate_criterion_id <> '' ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("read the gated aliases: %w", err)
	}
	for _, name := range names {
		a, err := alias.Find(ctx, in, name)
		if err != nil {
			return nil, err
		}
		if a == nil {
			continue
		}
		one := []alias.Alias{*a}
		if err := s.Show(ctx, in, one); err != nil {
			return nil, err
		}
		report := one[0].Gate
		title, alarms := alarming[Verdict(report.Verdict)]
		if !alarms || Verdict(report.Verdict) != Paused && report.Mode == alias.Auto {
			continue
		}
		n := module.Notice{
			Kind: "gate." + report.Verdict, Subject: name, Title: fmt.Sprintf(title, name), Detail: report.Reason,
			Link: module.Link{Page: "aliases/" + name},
		}
		if report.EvaluatedAt != nil {
			n.At = *report.EvaluatedAt
		}
		all = append(all, n)
	}
	return all, nil
}
