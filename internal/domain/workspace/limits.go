package workspace

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

// Limits are what a key, or all keys of a workspace together, may do.
type Limits struct {
	RequestsPerMinute int64       `json:"requests_per_minute" doc:"Inference requests in any 60 seconds; 0 for no limit"`
	TokensPerMinute   int64       `json:"tokens_per_minute" doc:"Input and output tokens in any 60 seconds; 0 for no limit"`
	Concurrency       int64       `json:"concurrency" doc:"Inference requests that run at once; 0 for no limit"`
	BudgetDay         money.Nano  `json:"budget_day_usd" doc:"What may be spent in a UTC day; 0 for no limit"`
	BudgetMonth       money.Nano  `json:"budget_month_usd" doc:"What may be spent in a UTC month; 0 for no limit"`
	Models            Names       `json:"models" nullable:"false" doc:"The models that may be called: catalog ids, alias names, and beginnings of them with a * at the end; empty for all"`
	Scope             Scope       `json:"scope" enum:"full,inference" doc:"inference: only the inference endpoints, the list of models and the setup status"`
	ExpiresAt         *clock.Time `json:"expires_at" doc:"From then on the key is refused; null for never"`
	AllowedAddresses  Names       `json:"allowed_addresses" nullable:"false" doc:"Addresses and ranges from which the key may be used; empty for all"`
}

// A Scope is the part of the API that a key opens.
type Scope string

// The scopes.
const (
	ScopeFull      Scope = "full"
	ScopeInference Scope = "inference"
)

// Names are texts in order, kept as JSON.
type Names []string

// noLimits are the limits of what has none.
var noLimits = Limits{Models: Names{}, Scope: ScopeFull, AllowedAddresses: Names{}}

// A LimitsChange is what shall be set; what is nil stays as it is.
type LimitsChange struct {
	RequestsPerMinute *int64      `json:"requests_per_minute,omitzero" doc:"0 for no limit"`
	TokensPerMinute   *int64      `json:"tokens_per_minute,omitzero" doc:"0 for no limit"`
	Concurrency       *int64      `json:"concurrency,omitzero" doc:"0 for no limit"`
	BudgetDay         *money.Nano `json:"budget_day_usd,omitzero" doc:"0 for no limit"`
	BudgetMonth       *money.Nano `json:"budget_month_usd,omitzero" doc:"0 for no limit"`
	Models            *Names      `json:"models,omitzero" doc:"Empty for all"`
	Scope             *Scope      `json:"scope,omitzero" enum:"full,inference"`
	ExpiresAt         *string     `json:"expires_at,omitzero" doc:"An RFC 3339 time; empty for never"`
	AllowedAddresses  *Names      `json:"allowed_addresses,omitzero" doc:"Addresses and ranges such as 10.0.0.0/8; empty for all"`
}

// Bounds of limits: more is a typing error.
const (
	maxLimit     = 1_000_000_000_000
	maxNames     = 100
	maxModelName = 256
)

// with returns l with a change, or the first rule that the change breaks.
func (l Limits) with(c *LimitsChange) (Limits, error) {
	for _, n := range []struct {
		field string
		to    *int64
		by    *int64
	}{
		{"requests_per_minute", &l.RequestsPerMinute, c.RequestsPerMinute},
		{"tokens_per_minute", &l.TokensPerMinute, c.TokensPerMinute},
		{"concurrency", &l.Concurrency, c.Concurrency},
		{"budget_day_usd", (*int64)(&l.BudgetDay), (*int64)(c.BudgetDay)},
		{"budget_month_usd", (*int64)(&l.BudgetMonth), (*int64)(c.BudgetMonth)},
	} {
		switch {
		case n.by == nil:
		case *n.by < 0:
			return l, fault.Invalid(n.field, "must be 0 or more")
		case *n.by > maxLimit && !strings.HasSuffix(n.field, "usd"):
			return l, fault.Invalid(n.field, fmt.Sprintf("must be at most %d", int64(maxLimit)))
		default:
			*n.to = *n.by
		}
	}
	if c.Scope != nil {
		if l.Scope = *c.Scope; l.Scope != ScopeFull && l.Scope != ScopeInference {
			return l, fault.Invalid("scope", "must be full or inference")
		}
	}
	if c.ExpiresAt != nil {
		if l.ExpiresAt = nil; *c.ExpiresAt != "" {
			l.ExpiresAt = new(clock.Time)
			if err := l.ExpiresAt.UnmarshalText([]byte(*c.ExpiresAt)); err != nil {
				return l, fault.Invalid("expires_at", err.Error())
			}
		}
	}
	return l, l.setNames(c)
}

// setNames sets the models and the addresses.
func (l *Limits) setNames(c *LimitsChange) error {
	if c.Models != nil {
		l.Models = append(Names{}, *c.Models...)
		if err := checkModelNames(l.Models); err != nil {
			return err
		}
	}
	if c.AllowedAddresses != nil {
		l.AllowedAddresses = append(Names{}, *c.AllowedAddresses...)
		if _, err := parseAddresses(l.AllowedAddresses); err != nil {
			return err
		}
	}
	return nil
}

func checkModelNames(names Names) error {
	if len(names) > maxNames {
		return fault.Invalid("models", fmt.Sprintf("must be at most %d names", maxNames))
	}
	for i, name := range names {
		field := fmt.Sprintf("models[%d]", i)
		switch {
		case name == "" || len(name) > maxModelName:
			return fault.Invalid(field, fmt.Sprintf("must be 1 to %d bytes", maxModelName))
		case strings.Contains(name[:len(name)-1], "*"):
			return fault.Invalid(field, "may have a * at its end only")
		case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }):
			return fault.Invalid(field, "must be the id of a model or the name of an alias")
		}
	}
	return nil
}

// parseAddresses reads addresses and ranges of them. An IPv4 address that is written as IPv6 is the same address.
func parseAddresses(texts Names) (live.AddressRange, error) {
	if len(texts) > maxNames {
		return nil, fault.Invalid("allowed_addresses", fmt.Sprintf("must be at most %d ranges", maxNames))
	}
	var all live.AddressRange
	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, alone := netip.ParseAddr(text)
			if alone != nil || address.Zone() != "" {
				return nil, fault.Invalid(
					fmt.Sprintf("allowed_addresses[%d]", i), "must be an address or a range such as 10.0.0.0/8",
				)
			}
			address = address.Unmap()
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// none reports whether l limits nothing.
func (l *Limits) none() bool {
	return l.RequestsPerMinute == 0 && l.TokensPerMinute == 0 && l.Concurrency == 0 && l.BudgetDay == 0 &&
		l.BudgetMonth == 0 &&
		len(l.Models) == 0 && l.Scope == ScopeFull && l.ExpiresAt == nil && len(l.AllowedAddresses) == 0
}

// live returns the limits as the data plane keeps them, or nil if there are none.
func (l *Limits) live() (*live.Limits, error) {
	if l.none() {
		return nil, nil //nolint:nilnil // nil limits nothing
	}
	addresses, err := parseAddresses(l.AllowedAddresses)
	made := &live.Limits{
		RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute, Concurrency: l.Concurrency,
		BudgetPerDay: l.BudgetDay, BudgetPerMonth: l.BudgetMonth, Models: live.ModelNames(l.Models),
		InferenceOnly: l.Scope == ScopeInference, Addresses: addresses,
	}
	if l.ExpiresAt != nil {
		made.ExpiresAt = *l.ExpiresAt
	}
	return made, err
}
