package scan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestElementsYieldsEveryElement(t *testing.T) {
	values := rapid.SampledFrom([]string{`1`, `"a,]b\"["`, `{"a":[1,{"b":"}"}]}`, `[]`, `[[1],[2]]`, `null`, `{}`, `-1.5e3`})
	spaces := rapid.SampledFrom([]string{"", " ", "\n\t "})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(values, 0, 6).Draw(t, "values")
		var padded []string
		for _, v := range want {
			padded = append(padded, spaces.Draw(t, "left")+v+spaces.Draw(t, "right"))
		}
		text := spaces.Draw(t, "before") + "[" + strings.Join(padded, ",") + "]"
		if !json.Valid([]byte(text)) {
			t.Fatal(text)
		}
		var got []string
		for e := range Elements([]byte(text)) {
			got = append(got, string(e))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q", text, got)
		}
	})
}

func TestElementsStopsAtASyntaxError(t *testing.T) {
	for text, want := range map[string]int{``: 0, `{}`: 0, `[`: 0, `[1`: 1, `[1,`: 1, `[1 2]`: 1, `["a`: 0, `[{]`: 0, `x`: 0} {
		n := 0
		for range Elements([]byte(text)) {
			n++
		}
		if n != want {
			t.Error(fmt.Sprintf("%q", text), n)
		}
	}
}
