package scan_test

import (
	"bytes"
	stdjson "encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/text/scan"
)

// wanted are words of different lengths, some of them similar.
var wanted = []string{"a", "developer", "image_url", "video_url", "input_audio", "role", "sixteen_letters_", ""}

// found reports whether a decoded value contains word as a member name or a string.
func found(value any, word string) bool {
	switch v := value.(type) {
	case string:
		return v == word
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return found(inner, word) })
	case map[string]any:
		for name, inner := range v {
			if name == word || found(inner, word) {
				return true
			}
		}
	}
	return false
}

func TestWordsAreSeenInNamesAndStringsAtEveryDepth(t *testing.T) {
	words := scan.NewWords(wanted...)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom(wanted), rapid.SampledFrom([]string{"developers", "imageXurl", "b", `"developer"`, "x \\ y", "sixteen_letters__"}))
		var value func(level int) *rapid.Generator[any]
		value = func(level int) *rapid.Generator[any] {
			if level == 0 {
				return rapid.Map(text, func(s string) any { return s })
			}
			return rapid.OneOf(
				rapid.Map(text, func(s string) any { return s }),
				rapid.Map(rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return value(level - 1) }), 0, 4), func(v []any) any { return v }),
				rapid.Map(rapid.MapOfN(text, rapid.Deferred(func() *rapid.Generator[any] { return value(level - 1) }), 0, 4), func(v map[string]any) any { return v }),
			)
		}
		all := rapid.MapOfN(rapid.SampledFrom([]string{"one", "two", "three", "developer"}), value(3), 1, 4).Draw(t, "object")
		var body bytes.Buffer
		encoder := stdjson.NewEncoder(&body)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(all); err != nil {
			t.Fatal(err)
		}
		members, err := scan.ObjectWithWords(body.Bytes(), nil, words)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			for i, word := range wanted {
				if want := found(all[m.Name], word); (m.Seen&(1<<i) != 0) != want {
					t.Fatalf("%q in %s: seen %v, want %v", word, m.Value, !want, want)
				}
			}
		}
	})
}
