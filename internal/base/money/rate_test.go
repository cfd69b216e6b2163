package money_test

import (
	stdjson "encoding/json"
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"sovereign/internal/base/money"
)

// A sum is a Tally beside the same sum without bounds.
type sum struct {
	tally money.Tally
	exact big.Int
}

func (s *sum) add(tokens int64, at money.Rate) {
	s.tally.Add(tokens, at)
	if tokens > 0 && at > 0 {
		s.exact.Add(&s.exact, new(big.Int).Mul(big.NewInt(tokens), big.NewInt(int64(at))))
	}
}

// want is the exact sum per million, rounded up, or the largest amount.
func (s *sum) want() money.Nano {
	per := big.NewInt(1_000_000)
	cost := new(big.Int).Add(&s.exact, big.NewInt(999_999))
	if cost.Div(cost, per); !cost.IsInt64() {
		return math.MaxInt64
	}
	return money.Nano(cost.Int64())
}

func TestATallyIsTheExactSumRoundedUpOnce(t *testing.T) {
	edges := rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, 999_999, 1_000_000, 1_000_001, math.MaxInt64 - 1, math.MaxInt64})
	tokens := rapid.OneOf(rapid.Int64Range(-10, 10_000_000), rapid.Int64(), edges)
	rates := rapid.OneOf(rapid.Int64Range(-10, int64(money.MaxRate)), rapid.Int64(), edges)
	rapid.Check(t, func(t *rapid.T) {
		var s sum
		for range rapid.IntRange(0, 8).Draw(t, "lines") {
			s.add(tokens.Draw(t, "tokens"), money.Rate(rates.Draw(t, "rate")))
			if got := s.tally.Cost(); got != s.want() {
				t.Fatalf("%s billionths of a millionth cost %d, want %d", &s.exact, got, s.want())
			}
		}
	})
}

// What lies close to a bound of the arithmetic is never met by chance, so it is built.
func TestATallyIsExactAroundEveryBound(t *testing.T) {
	bounds := map[string]*big.Int{
		"one nano":            big.NewInt(1_000_000),
		"a word":              new(big.Int).Lsh(big.NewInt(1), 64),
		"the largest amount":  new(big.Int).Mul(big.NewInt(math.MaxInt64), big.NewInt(1_000_000)),
		"twice that":          new(big.Int).Lsh(big.NewInt(1_000_000), 64),
		"all that fits in it": new(big.Int).Lsh(big.NewInt(1), 128),
	}
	for name, bound := range bounds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				target := new(big.Int).Add(bound, big.NewInt(rapid.Int64Range(-1_500_000, 1_500_000).Draw(t, "off")))
				var s sum
				s.reach(target)
				if got := s.tally.Cost(); got != s.want() {
					t.Fatalf("%s billionths of a millionth cost %d, want %d", &s.exact, got, s.want())
				}
				before := s.tally.Cost()
				s.add(rapid.Int64Min(0).Draw(t, "more"), money.Rate(rapid.Int64Min(0).Draw(t, "at")))
				if got := s.tally.Cost(); got != s.want() || got < before {
					t.Fatalf("with more, %s cost %d, want %d; before it was %d", &s.exact, got, s.want(), before)
				}
			})
		})
	}
}

// reach adds until the sum is target.
func (s *sum) reach(target *big.Int) {
	const step = 1 << 62
	for s.exact.Cmp(target) < 0 {
		rest := new(big.Int).Sub(target, &s.exact)
		if rest.IsInt64() && rest.Int64() < step {
			s.add(rest.Int64(), 1)
			continue
		}
		times := rest.Div(rest, big.NewInt(step))
		if !times.IsInt64() {
			times.SetInt64(math.MaxInt64)
		}
		s.add(step, money.Rate(times.Int64()))
	}
}

func TestManySmallAmountsAreRoundedTogether(t *testing.T) {
	var many money.Tally
	for range 1_000_000 {
		many.Add(1, 1)
	}
	if many.Cost() != 1 {
		t.Errorf("a million millionths of a nano cost %d", many.Cost())
	}
	if many.Add(1, 1); many.Cost() != 2 {
		t.Errorf("a little more than a nano costs %d", many.Cost())
	}
	if none := (money.Tally{}).Cost(); none != 0 {
		t.Errorf("nothing costs %d", none)
	}
}

func TestARateIsADollarNumberInJSONAndReadsBack(t *testing.T) {
	type row struct {
		Rate money.Rate `json:"rate"`
	}
	rates := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, int64(money.MaxRate)), rapid.SampledFrom([]int64{math.MinInt64, 0, 1, int64(money.MaxRate), math.MaxInt64}))
	rapid.Check(t, func(t *rapid.T) {
		in := row{money.Rate(rates.Draw(t, "rate"))}
		std, stdErr := stdjson.Marshal(in)
		v2, v2Err := json.Marshal(in)
		if want := `{"rate":` + money.Nano(in.Rate).String() + `}`; stdErr != nil || v2Err != nil || string(std) != want || string(v2) != want {
			t.Fatalf("%s: %s %v, %s %v", want, std, stdErr, v2, v2Err)
		}
		var a, b row
		if err := errors.Join(stdjson.Unmarshal(std, &a), json.Unmarshal(v2, &b)); err != nil || a != in || b != in {
			t.Fatalf("%s is read as %v and %v, %v", std, a, b, err)
		}
	})
	for text, want := range map[string]money.Rate{"2.5": money.Rate(2_500_000_000), "0": 0, "1e-9": 1, money.MaxRate.String(): money.MaxRate} {
		var got money.Rate
		if err := got.UnmarshalJSON([]byte(text)); err != nil || got != want {
			t.Errorf("%s is read as %d %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{`"2.5"`, "null", "1e-10", "NaN", "", "9223372036.854775808"} {
		got := money.Rate(42)
		if err := got.UnmarshalJSON([]byte(text)); !errors.Is(err, money.ErrAmount) || got != 42 {
			t.Errorf("%q is read as %d %v", text, got, err)
		}
	}
}
