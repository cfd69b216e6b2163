package money_test

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"sovereign/internal/base/money"
)

var plain = regexp.MustCompile(`^-?(0|[1-9]\d*)(\.\d{0,8}[1-9])?$`)

// dollars is n as a fraction of a dollar.
func dollars(n money.Nano) *big.Rat { return big.NewRat(int64(n), int64(money.Dollar)) }

// exact is the amount that text names, or false when no Nano is exactly that.
func exact(t interface{ Fatalf(string, ...any) }, text string) (money.Nano, bool) {
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q is not a number", text)
	}
	value.Mul(value, big.NewRat(int64(money.Dollar), 1))
	if !value.IsInt() || !value.Num().IsInt64() {
		return 0, false
	}
	return money.Nano(value.Num().Int64()), true
}

func amounts() *rapid.Generator[money.Nano] {
	all := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2e9, 2e9), rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64}))
	return rapid.Map(all, func(n int64) money.Nano { return money.Nano(n) })
}

func TestTextIsExactAndReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := amounts().Draw(t, "n")
		text := n.String()
		if shown, ok := new(big.Rat).SetString(text); !plain.MatchString(text) || !ok || shown.Cmp(dollars(n)) != 0 {
			t.Fatalf("%d is shown as %s", int64(n), text)
		}
		if back, err := money.Parse(text); err != nil || back != n {
			t.Fatalf("%s is read as %d %v, was %d", text, int64(back), err, int64(n))
		}
	})
}

func TestJSONIsANumberAndReadsBack(t *testing.T) {
	type row struct {
		USD money.Nano `json:"usd"`
	}
	rapid.Check(t, func(t *rapid.T) {
		in := row{amounts().Draw(t, "n")}
		std, stdErr := stdjson.Marshal(in)
		v2, v2Err := json.Marshal(in)
		if want := fmt.Sprintf(`{"usd":%s}`, in.USD); stdErr != nil || v2Err != nil || string(std) != want || string(v2) != want {
			t.Fatalf("%s: %s %v, %s %v", want, std, stdErr, v2, v2Err)
		}
		var a, b row
		if err := errors.Join(stdjson.Unmarshal(std, &a), json.Unmarshal(v2, &b)); err != nil || a != in || b != in {
			t.Fatalf("%s is read as %v and %v, %v", std, a, b, err)
		}
	})
}

func TestParseNeverRounds(t *testing.T) {
	number := rapid.StringMatching(`-?[0-9]{1,12}(\.[0-9]{1,12})?`)
	rapid.Check(t, func(t *rapid.T) {
		text := number.Draw(t, "text")
		_, fraction, _ := strings.Cut(text, ".")
		want, fits := exact(t, text)
		fits = fits && len(fraction) <= 9
		got, err := money.Parse(text)
		if fits != (err == nil) || got != want && fits {
			t.Fatalf("%s: got %d %v, want %d %v", text, int64(got), err, int64(want), fits)
		}
		if err != nil && (!errors.Is(err, money.ErrAmount) || got != 0) {
			t.Fatalf("%s: got %d %v", text, int64(got), err)
		}
	})
}

func TestExponentsAreExact(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?[eE][+-]?0?[0-9]{1,2}`)
	rapid.Check(t, func(t *rapid.T) {
		text := number.Draw(t, "text")
		_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
		var places int
		if _, err := fmt.Sscanf(exponent, "%d", &places); err != nil {
			t.Fatal(err)
		}
		want, fits := exact(t, text)
		fits = fits && places >= -40 && places <= 40
		var got money.Nano
		err := got.UnmarshalJSON([]byte(text))
		if fits != (err == nil) || got != want && fits {
			t.Fatalf("%s: got %d %v, want %d %v", text, int64(got), err, int64(want), fits)
		}
	})
	for text, want := range map[string]money.Nano{"1e-9": 1, "-2.5E-7": -250, "9.223372036854775807e9": math.MaxInt64, "1e+2": 100 * money.Dollar} {
		var got money.Nano
		if err := got.UnmarshalJSON([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d %v, want %d", text, int64(got), err, int64(want))
		}
	}
}

func TestInvalidAmountsAreRefusedAndChangeNothing(t *testing.T) {
	for _, text := range []string{
		"", "-", ".", "1.", ".5", "-.5", "+1", "1_000", "1,5", "0x10", "1 ", " 1", "--1", "1.-5", "NaN", "Inf", "null", "true", `"25"`, "[]", "{}",
		"٣", "1.0000000000", "0.0000000001", "1e-10", "1e41", "1e99999999999999999999", "9223372036.854775808", "-9223372036.854775809", "1e10",
	} {
		n := money.Nano(42)
		if err := n.UnmarshalJSON([]byte(text)); !errors.Is(err, money.ErrAmount) || n != 42 {
			t.Errorf("JSON %q: %d %v", text, int64(n), err)
		}
		if got, err := money.Parse(text); !errors.Is(err, money.ErrAmount) || got != 0 {
			t.Errorf("%q: %d %v", text, int64(got), err)
		}
	}
}

func TestAddIsExactOrReportsOverflow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := amounts().Draw(t, "n"), amounts().Draw(t, "m")
		want := new(big.Int).Add(big.NewInt(int64(n)), big.NewInt(int64(m)))
		got, ok := n.Add(m)
		if ok != want.IsInt64() || ok && int64(got) != want.Int64() || !ok && got != 0 {
			t.Fatalf("%d + %d = %d %v, want %s", int64(n), int64(m), int64(got), ok, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"25", "0.000001", "-3.5", "9223372036.854775807", "-9223372036.854775808", "1.0000000000", "", "-", "00.0", "1e5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := money.Parse(text)
		if err != nil {
			return
		}
		if want, fits := exact(t, text); !fits || got != want {
			t.Fatalf("%q is read as %d", text, int64(got))
		}
	})
}

func FuzzUnmarshalJSON(f *testing.F) {
	for _, seed := range []string{"25", "1e-9", "-2.5E-7", "9.223372036854775807e9", "1e40", "0e-40", "1e+2", "0.1e1", `"1"`, "null", "1e", "e1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := money.Nano(42)
		err := n.UnmarshalJSON(data)
		switch {
		case err != nil && n != 42:
			t.Fatalf("%q is refused and leaves %d", data, int64(n))
		case err == nil && stdjson.Valid(data):
			if want, fits := exact(t, string(data)); !fits || n != want {
				t.Fatalf("%q is read as %d", data, int64(n))
			}
		}
	})
}
