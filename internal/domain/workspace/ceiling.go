package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/store/db"
)

// ceiling returns the limits of a workspace that the operator has set. Its owners may tighten them, and no more. The
// audit trail tells them from those that owners have set themselves.
func ceiling(ctx context.Context, in db.Scoped) (set Limits, err error) {
	type change struct {
		Before []byte `db:"before_json"`
		After  []byte `db:"after_json"`
	}
	all, err := db.Query[change](ctx, in, `
		SELECT before_json, after_json FROM audit_entries
		WHERE workspace_id = $1 AND subject = $1 AND action = 'workspace.limits' AND actor_kind = 'operator' ORDER BY at, id`)
	if err != nil {
		return set, fmt.Errorf("read what the operator has limited: %w", err)
	}
	set = noLimits
	for _, c := range all {
		before, after := noLimits, noLimits
		if err := json.Unmarshal(c.Before, &before); err != nil {
			return set, fmt.Errorf("read what the operator has limited: %w", err)
		}
		if err := json.Unmarshal(c.After, &after); err != nil {
			return set, fmt.Errorf("read what the operator has limited: %w", err)
		}
		set.follow(&before, &after)
	}
	return set, nil
}

// follow takes over what differs between two limits.
func (l *Limits) follow(before, after *Limits) {
	follow(&l.RequestsPerMinute, before.RequestsPerMinute, after.RequestsPerMinute)
	follow(&l.TokensPerMinute, before.TokensPerMinute, after.TokensPerMinute)
	follow(&l.Concurrency, before.Concurrency, after.Concurrency)
	follow(&l.BudgetDay, before.BudgetDay, after.BudgetDay)
	follow(&l.BudgetMonth, before.BudgetMonth, after.BudgetMonth)
	follow(&l.Scope, before.Scope, after.Scope)
	if !slices.Equal(before.Models, after.Models) {
		l.Models = after.Models
	}
	if !slices.Equal(before.AllowedAddresses, after.AllowedAddresses) {
		l.AllowedAddresses = after.AllowedAddresses
	}
	if was, is := before.ExpiresAt, after.ExpiresAt; (was == nil) != (is == nil) || was != nil && *was != *is {
		l.ExpiresAt = is
	}
}

func follow[T comparable](to *T, before, after T) {
	if before != after {
		*to = after
	}
}

// within refuses limits that permit more than the operator's.
func (l *Limits) within(most *Limits) error {
	for _, n := range []struct {
		field    string
		is, most int64
	}{
		{"requests_per_minute", l.RequestsPerMinute, most.RequestsPerMinute},
		{"tokens_per_minute", l.TokensPerMinute, most.TokensPerMinute},
		{"concurrency", l.Concurrency, most.Concurrency},
		{"budget_day_usd", int64(l.BudgetDay), int64(most.BudgetDay)},
		{"budget_month_usd", int64(l.BudgetMonth), int64(most.BudgetMonth)},
	} {
		if n.most > 0 && (n.is == 0 || n.is > n.most) {
			return errCeiling(n.field)
		}
	}
	switch {
	case most.Scope == ScopeInference && l.Scope != ScopeInference:
		return errCeiling("scope")
	case most.ExpiresAt != nil && (l.ExpiresAt == nil || *l.ExpiresAt > *most.ExpiresAt):
		return errCeiling("expires_at")
	case len(most.Models) > 0 && !covers(most.Models, l.Models, coversModel):
		return errCeiling("models")
	case len(most.AllowedAddresses) > 0 && !covers(most.AllowedAddresses, l.AllowedAddresses, coversAddress):
		return errCeiling("allowed_addresses")
	}
	return nil
}

func errCeiling(field string) error {
	return fault.Forbidden.New(
		"%s is limited by the operator: you can tighten it, and ask the operator for more", field,
	)
}

// covers reports whether each of some names, of which there is one at least, is covered by one of most.
func covers(most, some Names, one func(most, name string) bool) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(name string) bool {
		return !slices.ContainsFunc(most, func(m string) bool { return one(m, name) })
	})
}

func coversModel(most, name string) bool {
	beginning, open := strings.CutSuffix(most, "*")
	return most == name || open && strings.HasPrefix(name, beginning)
}

func coversAddress(most, name string) bool {
	ranges, err := parseAddresses(Names{most, name})
	if err != nil {
		return false
	}
	wide, narrow := ranges[0], ranges[1]
	return wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
}
