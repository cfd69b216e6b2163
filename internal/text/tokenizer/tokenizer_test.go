package tokenizer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/dlclark/regexp2/v2"
	"github.com/go-json-experiment/json"
	library "github.com/tiktoken-go/tokenizer"
	"pgregory.net/rapid"
)

const testdata = "../token/testdata"

// TestTheCorpusIsCountedExactly compares with the counts of the reference encoder, which are stored with the corpus.
func TestTheCorpusIsCountedExactly(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testdata, "counts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vocabularies []struct {
		Name   string             `json:"vocabulary"`
		Counts map[string][]int64 `json:"counts"`
	}
	if err := json.Unmarshal(data, &vocabularies); err != nil {
		t.Fatal(err)
	}
	texts := 0
	for _, v := range vocabularies {
		if v.Name != "o200k_base" {
			continue
		}
		for name, counts := range v.Counts {
			text, err := os.ReadFile(filepath.Join(testdata, "corpus", name))
			if err != nil {
				t.Fatal(err)
			}
			for i, part := range append([][]byte{text}, bytes.Split(text, []byte("\n"))...) {
				texts++
				if got := Count(string(part)); got != counts[i] {
					t.Errorf("line %d of %s is %d tokens, not %d: %q", i, name, got, counts[i], part)
				}
			}
		}
	}
	if texts < 1000 {
		t.Errorf("only %d texts were compared", texts)
	}
}

// pieces divides text with a regular-expression library that interprets the pattern.
func pieces(t rapid.TB, text string) (all []string) {
	t.Helper()
	pattern := regexp2.MustCompile(`(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|`+
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|`+
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None)
	match, err := pattern.FindStringMatch(text)
	for ; match != nil && err == nil; match, err = pattern.FindNextMatch(match) {
		all = append(all, match.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fragments are characters and words that the pattern distinguishes, with edge cases.
var fragments = strings.Split("a b s T É é ß ǅ ʰ ª ж Ж 日 本 ก 한 \u0301 \u0903 \u20dd 0 9 ½ Ⅷ ٣ ² ' ’ ! ? . / - _ € 😀 \u200d \x00 \x7f \ufffd "+
	"'s 'S 'ſ 't 'll 'Re 'VE 'lL 'x ab Ab AB aB 日A A日 123 //", " ")

var blank = []string{" ", "  ", "\t", "\n", "\r", "\r\n", " \n", "\u00a0", "\u2003", "\u3000", "\u0085"}

func TestNextMatchesThePattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(fragments), rapid.SampledFrom(blank)), 1, 40).Draw(t, "text"), "")
		want, rest := pieces(t, text), text
		for i := 0; rest != ""; i++ {
			length := next(rest)
			if i >= len(want) || rest[:length] != want[i] {
				t.Fatalf("%q is divided into %q, and piece %d is %q", text, want, i, rest[:length])
			}
			rest = rest[length:]
		}
	})
}

// The library splits white space with several line ends wrongly and drops some control characters. The test uses texts
// without them.
func TestMergingAgreesWithTheLibrary(t *testing.T) {
	codec, err := library.Get(library.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune("abcdefghijklmnopqrstuvwxyzABC 日本語한ж0123456789.,-=!'")), 0, 300, -1),
			rapid.StringOf(rapid.Rune().Filter(unicode.IsPrint)),
		).Draw(t, "text")
		want, err := codec.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Count(text); got != int64(want) {
			t.Fatalf("%d tokens, the library says %d", got, want)
		}
	})
}

func TestTheVocabularyIsComplete(t *testing.T) {
	if len(ranks()) != size {
		t.Errorf("%d tokens of %d", len(ranks()), size)
	}
	for b := range 256 {
		if _, ok := ranks()[string([]byte{byte(b)})]; !ok {
			t.Errorf("byte %d is not a token", b)
		}
	}
}

func TestInvalidUTF8HasAtMostOneTokenPerByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		if n := Count(string(text)); n > int64(len(text)) || (n == 0) != (len(text) == 0) {
			t.Fatalf("%d tokens in %d bytes", n, len(text))
		}
	})
}

// units are repeated to make the most expensive texts.
var units = []string{"a", "A", " ", "\n", " \n", "\n ", "\t\n", "          \n", "!", "7", "的中", "龘", "A1", "👩", "\xff", "\u0301", "日A", "qzjx", "ab'S", "/\n", "ſ'"}

// TestStepsAreLinear counts the characters decoded and the parts compared, so that the result does not depend on the
// machine. Merging n bytes compares fewer than n² / 2 + n parts, and n is at most maxMerge. Without cut, the texts
// below would take more than ten times the bound.
func TestStepsAreLinear(t *testing.T) {
	const length = 16 * maxMerge
	decoded := 0
	onDecode = func() { decoded++ }
	defer func() { onDecode = nil }()
	for _, unit := range units {
		text := strings.Repeat(unit, length/len(unit))
		decoded = 0
		var m merger
		m.countText(text)
		if most := len(text) * (maxMerge/2 + 2); m.steps > most {
			t.Errorf("%q repeated to %d bytes: %d parts compared, more than %d", unit, len(text), m.steps, most)
		}
		if most := 8 * len(text); decoded > most {
			t.Errorf("%q repeated to %d bytes: %d characters decoded, more than %d", unit, len(text), decoded, most)
		}
	}
}

func TestALongRunDiffersByAtMostTwoTokensForEachCut(t *testing.T) {
	codec, err := library.Get(library.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.StringOfN(rapid.RuneFrom([]rune("abcdefghijklmnopqrstuvwxyz的中日本한국กขжñ")), 1, 12, -1).Draw(t, "unit")
		text := strings.Repeat(unit, 8*maxMerge/len(unit))
		want, err := codec.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		if difference := Count(text) - int64(want); difference < -16 || difference > 16 {
			t.Fatalf("differs by %d after 8 cuts", difference)
		}
	})
}

func TestCountIsSafeForConcurrentUse(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testdata, "corpus", "english-story.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := Count(string(text))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				if got := Count(string(text)); got != want {
					t.Errorf("%d tokens, and %d when alone", got, want)
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkCount(b *testing.B) {
	for _, name := range []string{"english-story", "code-typescript", "chinese", "random-base64", "random-letters"} {
		text, err := os.ReadFile(filepath.Join(testdata, "corpus", name+".txt"))
		if err != nil {
			b.Fatal(err)
		}
		whole := strings.Repeat(string(text), 50_000/len(text)+1)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(whole)))
			b.ReportAllocs()
			for b.Loop() {
				Count(whole)
			}
		})
	}
	for _, unit := range units {
		text := strings.Repeat(unit, 100_000/len(unit))
		b.Run("repeated "+unit, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Count(text)
			}
		})
	}
}
