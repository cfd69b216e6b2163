package serving_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sovereign/internal/domain/serving"
)

func TestLastLinesAreFitForPeople(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		output := rapid.SliceOf(rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 40),
			rapid.Map(rapid.IntRange(0, 3000), func(n int) []byte { return []byte(strings.Repeat("ü", n)) }),
			rapid.Just([]byte("\n")), rapid.Just([]byte("\x1b[31mred\x1b[0m\r")),
		)).Draw(t, "output")
		lines := serving.LastLines([]byte(strings.Join(texts(output), "")), rapid.Bool().Draw(t, "cut"))
		if len(lines) > serving.MaxLines {
			t.Fatalf("%d lines", len(lines))
		}
		for _, line := range lines {
			if !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) || len(line) > 1100 || line == "" {
				t.Fatalf("%q", line)
			}
		}
	})
	const key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
	got := serving.LastLines([]byte(key+" end\n\x1b[1mfailed\x1b[0m with "+key+"\n"), false)
	if len(got) != 2 || strings.Contains(strings.Join(got, " "), key) || !strings.HasPrefix(got[1], "failed with ") {
		t.Errorf("%q", got)
	}
	if got := serving.LastLines([]byte(key[10:]+" end\nnext\n"), true); strings.Join(got, "|") != "end|next" {
		t.Errorf("what was cut: %q", got)
	}
}

func texts(all [][]byte) []string {
	var found []string
	for _, one := range all {
		found = append(found, string(one))
	}
	return found
}
