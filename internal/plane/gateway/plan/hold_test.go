package plan

import (
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
)

func TestAffordableIsTheLargestOutputThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(0, 1e12)
		rates := live.Flat(money.Rate(rate.Draw(t, "input")), money.Rate(rate.Draw(t, "output")))
		rates.CachedInput = money.Rate(rate.Draw(t, "cached"))
		p := live.Price{Rates: rates}
		input, n, limit := rapid.Int64Range(0, 1e6).Draw(t, "tokens"), rapid.Int64Range(1, 128).Draw(t, "n"), rapid.Int64Range(1, 1e6).Draw(t, "limit")
		free := money.Nano(rapid.Int64Range(0, 1e12).Draw(t, "free"))
		got := affordable(p, input, n, limit, free)
		if got > 0 && p.Worst(input, n*got, 0) > free {
			t.Fatalf("%d do not fit", got)
		}
		if got < limit && p.Worst(input, n*(got+1), 0) <= free {
			t.Fatalf("%d would fit too", got+1)
		}
	})
}
