package live_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

func rates(t *rapid.T, name string) live.Rates {
	rate := rapid.Custom(func(t *rapid.T) money.Rate {
		return money.Rate(rapid.Int64Range(0, int64(money.MaxRate)).Draw(t, "rate"))
	})
	return live.Rates{
		Input: rate.Draw(t, name), CachedInput: rate.Draw(t, name), WrittenInput: rate.Draw(t, name), AudioInput: rate.Draw(t, name),
		Output: rate.Draw(t, name), Reasoning: rate.Draw(t, name), AudioOutput: rate.Draw(t, name), Search: rate.Draw(t, name),
	}
}

func price(t *rapid.T) live.Price {
	p := live.Price{Rates: rates(t, "base")}
	over := int64(0)
	for range rapid.IntRange(0, 3).Draw(t, "tiers") {
		over += rapid.Int64Range(1, 1000).Draw(t, "more")
		p.Tiers = append(p.Tiers, live.Tier{Over: over, Rates: rates(t, "tier")})
	}
	return p
}

func usage(t *rapid.T) live.Usage {
	n := rapid.Int64Range(0, 4000)
	u := live.Usage{Cached: n.Draw(t, "cached"), Written: n.Draw(t, "written"), AudioInput: n.Draw(t, "audio"), Reasoning: n.Draw(t, "reasoning"), AudioOutput: n.Draw(t, "audio out"), Searches: n.Draw(t, "searches")}
	u.Input = u.Cached + u.Written + u.AudioInput + n.Draw(t, "fresh")
	u.Output = u.Reasoning + u.AudioOutput + n.Draw(t, "text")
	return u
}

func TestNoRequestCostsMoreThanItsWorstCase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := price(t), usage(t)
		more := rapid.Int64Range(0, 5000).Draw(t, "estimated too much")
		cost, worst := p.At(u.Input).Of(u), p.Worst(u.Input+more, u.Output, u.Searches)
		if cost > worst {
			t.Fatalf("%v costs %s at %v, and the worst case is %s", u, cost, p, worst)
		}
	})
}

func TestEveryTokenIsCountedOnceAtItsOwnRate(t *testing.T) {
	million := int64(1_000_000)
	r := live.Rates{Input: 1, CachedInput: 20, WrittenInput: 300, AudioInput: 4000, Output: 50_000, Reasoning: 600_000, AudioOutput: 7_000_000, Search: 80_000_000, GPUSecond: 900_000_000}
	u := live.Usage{Input: 4 * million, Cached: million, Written: million, AudioInput: million, Output: 3 * million, Reasoning: million, AudioOutput: million, Searches: million, GPUSeconds: million}
	if got := r.Of(u); got != 987_654_321 {
		t.Errorf("%d", got)
	}
	if got := (live.Rates{Input: 1, CachedInput: 5}).Of(live.Usage{Input: million, Cached: 3 * million}); got != 5 {
		t.Errorf("more cached tokens than there is input cost %d", got)
	}
}

func TestATierAppliesToAllTokensOfARequest(t *testing.T) {
	p := live.Price{Rates: live.Flat(1, 2), Tiers: []live.Tier{{Over: 200, Rates: live.Flat(10, 20)}, {Over: 1000, Rates: live.Flat(100, 200)}}}
	for input, want := range map[int64]money.Rate{0: 1, 200: 1, 201: 10, 1000: 10, 1001: 100} {
		if got := p.At(input).Input; got != want {
			t.Errorf("%d tokens cost %s each, want %s", input, got, want)
		}
	}
}

func TestRatesStoredByAnEarlierReleaseKeepTheirMeaning(t *testing.T) {
	r, err := live.ReadRates([]byte(`{"input_per_mtok_usd":2,"cached_input_per_mtok_usd":0.5,"output_per_mtok_usd":8}`))
	if err != nil {
		t.Fatal(err)
	}
	want := live.Flat(money.Rate(2*money.Dollar), money.Rate(8*money.Dollar))
	want.CachedInput = money.Rate(money.Dollar / 2)
	if r != want {
		t.Errorf("%+v", r)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := rates(t, "rates")
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := live.ReadRates(text); err != nil || back != r {
			t.Fatalf("%s: %v %v", text, back, err)
		}
	})
}

func TestAShareOfAPriceIsAShareOfEveryRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, u := price(t), usage(t)
		if p.Share(0).At(u.Input).Of(u) != 0 {
			t.Fatal("no share costs something")
		}
		if got := p.Share(1_000_000).At(u.Input).Of(u); got != p.At(u.Input).Of(u) {
			t.Fatal("the whole share is not the price")
		}
		half := p.Share(500_000).At(u.Input).Of(u)
		if whole := p.At(u.Input).Of(u); half < whole/2 {
			t.Fatalf("half of %s is %s", whole, half)
		}
	})
}
