package catalog

import (
	"errors"
	"fmt"
	"maps"

	"go.yaml.in/yaml/v3"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

// The keys that a price cannot do without.
const (
	inputKey  = "input_per_mtok_usd"
	outputKey = "output_per_mtok_usd"
	searchKey = "search_per_million_usd"
)

// rateKeys are the keys of a price, and what each of them sets.
var rateKeys = map[string]func(*live.Rates) *money.Rate{
	inputKey:                     func(r *live.Rates) *money.Rate { return &r.Input },
	"cached_input_per_mtok_usd":  func(r *live.Rates) *money.Rate { return &r.CachedInput },
	"written_input_per_mtok_usd": func(r *live.Rates) *money.Rate { return &r.WrittenInput },
	"audio_input_per_mtok_usd":   func(r *live.Rates) *money.Rate { return &r.AudioInput },
	outputKey:                    func(r *live.Rates) *money.Rate { return &r.Output },
	"reasoning_per_mtok_usd":     func(r *live.Rates) *money.Rate { return &r.Reasoning },
	"audio_output_per_mtok_usd":  func(r *live.Rates) *money.Rate { return &r.AudioOutput },
	searchKey:                    func(r *live.Rates) *money.Rate { return &r.Search },
}

// A priceEntry is a price, or a tier of one, as it is written.
type priceEntry struct {
	kind  live.Kind
	rates map[string]money.Rate // those that are given
	over  int64
	tiers []live.Tier
}

// needs says what a price of a kind of model must have.
var needs = map[live.Kind]struct {
	whole func(map[string]money.Rate) bool
	says  string
}{
	live.Chat: {func(r map[string]money.Rate) bool {
		return has(r, inputKey) && has(r, outputKey)
	}, "needs input_per_mtok_usd and output_per_mtok_usd; 0 is free"},
	live.Embedding: {func(r map[string]money.Rate) bool {
		return has(r, inputKey)
	}, "needs input_per_mtok_usd; 0 is free"},
	live.Rerank: {func(r map[string]money.Rate) bool {
		return has(r, inputKey) || has(r, searchKey)
	}, "needs input_per_mtok_usd or search_per_million_usd; 0 is free"},
}

func has(rates map[string]money.Rate, key string) bool {
	_, given := rates[key]
	return given
}

// value is the rates, with what was left out: it costs what input or output does.
func (p *priceEntry) value() (live.Rates, error) {
	if need, known := needs[p.kind]; known && !need.whole(p.rates) { // an unknown kind is refused elsewhere
		return live.Rates{}, errors.New(need.says)
	}
	all := live.Flat(p.rates[inputKey], p.rates[outputKey])
	for key, rate := range p.rates {
		*rateKeys[key](&all) = rate
	}
	return all, nil
}

var (
	priceRules = rated(rule[priceEntry]{"tiers": tiers})
	tierRules  = rated(rule[priceEntry]{"over_input_tokens": func(p *priceEntry, n *yaml.Node) error {
		return count(&p.over, n)
	}})
)

// rated is rules with those of the rates.
func rated(rules rule[priceEntry]) rule[priceEntry] {
	rules = maps.Clone(rules)
	for key := range rateKeys {
		rules[key] = func(p *priceEntry, n *yaml.Node) error {
			amount, err := money.Parse(n.Value)
			if err != nil || amount < 0 || money.Rate(amount) > money.MaxRate {
				return fmt.Errorf("must be dollars per million, from 0 to %s, with at most 9 decimals", money.MaxRate)
			}
			p.rates[key] = money.Rate(amount)
			return nil
		}
	}
	return rules
}

func tiers(p *priceEntry, n *yaml.Node) error {
	entries, err := list(n)
	if err != nil {
		return err
	}
	for _, e := range entries {
		one := priceEntry{kind: p.kind, rates: map[string]money.Rate{}}
		if err := entry(&one, e, tierRules); err != nil {
			return err
		}
		if one.over == 0 {
			return at(e, "over_input_tokens is missing")
		}
		if last := len(p.tiers) - 1; last >= 0 && one.over <= p.tiers[last].Over {
			return at(e, "over_input_tokens must be more than that of the tier before")
		}
		rates, err := one.value()
		if err != nil {
			return at(e, "%w", err)
		}
		p.tiers = append(p.tiers, live.Tier{Over: one.over, Rates: rates})
	}
	return nil
}

// price reads what a model costs. It takes the place of all that the model cost before.
func price(m *Model, n *yaml.Node) error {
	whole := priceEntry{kind: m.Kind, rates: map[string]money.Rate{}}
	if err := entry(&whole, n, priceRules); err != nil {
		return err
	}
	rates, err := whole.value()
	if err != nil {
		return err
	}
	m.priced, m.Price = true, live.Price{Rates: rates, Tiers: whole.tiers}
	return nil
}
