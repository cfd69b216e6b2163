package clock_test

import (
	stdjson "encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
)

var (
	first = clock.Of(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))
	last  = clock.Of(time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC))
	shape = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
)

func times() *rapid.Generator[clock.Time] {
	return rapid.Map(rapid.Int64Range(int64(first), int64(last)), func(n int64) clock.Time { return clock.Time(n) })
}

// toMilli drops what the wire does not carry, towards the past.
func toMilli(t clock.Time) clock.Time { return t - ((t%1000)+1000)%1000 }

func TestTextIsUTCWithThreeDecimalsAndReadsBackToTheMillisecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := times().Draw(t, "at")
		text := at.String()
		if !shape.MatchString(text) {
			t.Fatalf("%d is %q", at, text)
		}
		instant, err := time.Parse(time.RFC3339, text)
		if err != nil || clock.Of(instant) != toMilli(at) {
			t.Fatalf("%d is %q, which is %v %v", at, text, instant, err)
		}
	})
}

func TestJSONReadsBackWhatItWrote(t *testing.T) {
	type row struct {
		At   clock.Time  `json:"at"`
		Gone *clock.Time `json:"gone"`
	}
	codecs := map[string]struct {
		write func(any) ([]byte, error)
		read  func([]byte, any) error
	}{
		"encoding/json": {stdjson.Marshal, stdjson.Unmarshal},
		"json v2": {
			func(v any) ([]byte, error) { return json.Marshal(v) },
			func(b []byte, v any) error { return json.Unmarshal(b, v) },
		},
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				at := times().Draw(t, "at")
				text, err := codec.write(row{At: at})
				if want := `{"at":"` + at.String() + `","gone":null}`; err != nil || string(text) != want {
					t.Fatalf("want %s, got %s %v", want, text, err)
				}
				var back row
				if err := codec.read(text, &back); err != nil || back.At != toMilli(at) || back.Gone != nil {
					t.Fatalf("%s is read as %+v %v", text, back, err)
				}
			})
		})
	}
}

func TestAnyZoneIsReadAsTheSameInstant(t *testing.T) {
	for text, want := range map[string]string{
		"2026-03-01T00:30:00+02:00":        "2026-02-28T22:30:00.000Z",
		"2026-03-01T00:30:00.5-05:30":      "2026-03-01T06:00:00.500Z",
		"2026-03-01T00:30:00.123456789Z":   "2026-03-01T00:30:00.123Z",
		"1969-12-31T23:59:59.9999+00:00":   "1969-12-31T23:59:59.999Z",
		"2024-02-29T23:59:59.000000-00:00": "2024-02-29T23:59:59.000Z",
	} {
		var at clock.Time
		if err := at.UnmarshalText([]byte(text)); err != nil || at.String() != want {
			t.Errorf("%s: want %s, got %s %v", text, want, at, err)
		}
	}
}

func TestInvalidTimesAreRefusedAndChangeNothing(t *testing.T) {
	for _, text := range []string{
		"", "now", "1700000000", "2026-03-01", "2026-03-01T00:30:00", "2026-03-01 00:30:00Z", "2026-02-29T00:00:00Z",
		"2026-13-01T00:00:00Z", "2026-03-01T24:00:00Z", "2026-03-01T00:00:00Z ", "20260301T000000Z", "-2026-03-01T00:00:00Z",
	} {
		at := clock.Time(42)
		if err := at.UnmarshalText([]byte(text)); err == nil || at != 42 {
			t.Errorf("%q is read as %s", text, at)
		}
	}
}

func TestArithmeticIsExactToTheMicrosecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := times().Draw(t, "at")
		d := time.Duration(rapid.Int64Range(-1<<50, 1<<50).Draw(t, "d")) * time.Microsecond
		if got := at.Add(d).Sub(at); got != d {
			t.Fatalf("%s + %s - itself = %s", at, d, got)
		}
		if got := clock.Of(at.Std().Add(d)); got != at.Add(d) {
			t.Fatalf("%s + %s = %s, and the standard library says %s", at, d, at.Add(d), got)
		}
	})
}
