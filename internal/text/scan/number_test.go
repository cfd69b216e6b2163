package scan

import (
	"encoding/json"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestPlusFiveAndZeroZeroSevenAreNoNumbers(t *testing.T) {
	for _, value := range []string{"+5", "007", "00", "-07", "-", "+", ".5", "5.", "1e", "1e+", "-.5", "1.e2", "truefalse", "nul", "1-1", "--1", "e"} {
		if _, err := Object([]byte(`{"max_tokens":`+value+`}`), nil); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// A value at the top level is accepted if and only if it is JSON.
func TestLiteralsAreAcceptedIfTheyAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`(true|false|null|[-+]?[0-9]{0,3}(\.[0-9]{0,2})?([eE][-+]?[0-9]{0,2})?|[-+.eE0-9]{1,6})`).Draw(t, "value")
		_, err := Object([]byte(`{"a": `+value+` }`), nil)
		if valid := json.Valid([]byte(value)); (err == nil) != valid {
			t.Errorf("%q: %v", value, err)
		}
	})
}
