package token

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/tiktoken-go/tokenizer"
	"pgregory.net/rapid"
)

// A vocabulary is a row of testdata/counts.json: how many tokens each file of the corpus is, as a whole and line by
// line.
type vocabulary struct {
	Name     string             `json:"vocabulary"`
	Package  string             `json:"package"`
	Version  string             `json:"version"`
	Size     int                `json:"size"`
	Spanning []string           `json:"spanning"`
	Counts   map[string][]int64 `json:"counts"`
	Added    map[string][]int64 `json:"added_bytes"` // by the normalization that comes first
}

func vocabularies(t testing.TB) (all []vocabulary) {
	t.Helper()
	data, err := os.ReadFile("testdata/counts.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &all); err != nil || len(all) == 0 {
		t.Fatalf("%d vocabularies: %v", len(all), err)
	}
	return all
}

// parts returns a text and its lines, in the order of the stored counts.
func parts(text []byte) [][]byte { return append([][]byte{text}, bytes.Split(text, []byte("\n"))...) }

func TestTheCorpusLiesBetweenItsBoundsInEveryVocabulary(t *testing.T) {
	all := files(t)
	for _, v := range vocabularies(t) {
		if len(v.Counts) != len(all) {
			t.Errorf("%s counted %d of %d files", v.Name, len(v.Counts), len(all))
		}
		for name, text := range all {
			parts, counts := parts(text), v.Counts[name]
			if len(counts) != len(parts) {
				t.Fatalf("%s counted another text than %s", v.Name, name)
			}
			for i, part := range parts {
				got, added := Text(part), int64(0)
				if v.Added != nil {
					added = v.Added[name][i]
				}
				if got.Low > counts[i] || got.High+added < counts[i] {
					t.Errorf("%s, line %d of %s: %d tokens are not between %d and %d", v.Name, i, name, counts[i], got.Low, got.High)
				}
			}
		}
	}
}

var encodings = []tokenizer.Encoding{tokenizer.O200kBase, tokenizer.Cl100kBase, tokenizer.P50kBase, tokenizer.R50kBase}

func codecs(t testing.TB) (all []tokenizer.Codec) {
	t.Helper()
	for _, encoding := range encodings {
		codec, err := tokenizer.Get(encoding)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, codec)
	}
	return all
}

func count(t rapid.TB, codec tokenizer.Codec, text string) int64 {
	t.Helper()
	n, err := codec.Count(text)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

func TestTheCorpusLiesBetweenItsBoundsInEveryEncoding(t *testing.T) {
	for _, codec := range codecs(t) {
		for name, text := range files(t) {
			for _, part := range parts(text) {
				got, n := Text(part), count(t, codec, string(part))
				if got.Low > n || got.High < n {
					t.Errorf("%s in %s: %d tokens are not between %d and %d: %q", name, codec.GetName(), n, got.Low, got.High, part)
				}
			}
		}
	}
}

// cut returns a random piece of text that begins and ends between runes.
func cut(t *rapid.T, text []byte) string {
	from := rapid.IntRange(0, len(text)).Draw(t, "from")
	to := min(len(text), from+rapid.IntRange(0, 400).Draw(t, "length"))
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	return string(text[from:max(from, to)])
}

// mixtures draws texts of pieces of the corpus and of generated parts.
func mixtures(t testing.TB) *rapid.Generator[string] {
	all := files(t)
	names, generated := []string{}, []string{}
	for name := range all {
		names = append(names, name)
	}
	for kind := range kinds {
		generated = append(generated, kind)
	}
	slices.Sort(names)
	slices.Sort(generated)
	return rapid.Custom(func(t *rapid.T) string {
		var out strings.Builder
		for range rapid.IntRange(1, 6).Draw(t, "parts") {
			if rapid.Bool().Draw(t, "cut") {
				out.WriteString(cut(t, all[rapid.SampledFrom(names).Draw(t, "file")]))
			} else {
				s := source{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))}
				out.WriteString(kinds[rapid.SampledFrom(generated).Draw(t, "kind")](s))
			}
			out.WriteString(rapid.SampledFrom([]string{"", " ", "\n", ", "}).Draw(t, "between"))
		}
		return out.String()
	})
}

func TestRandomMixturesLieBetweenTheirBounds(t *testing.T) {
	all, texts := codecs(t), mixtures(t)
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		got := Text([]byte(text))
		for _, codec := range all {
			if n := count(t, codec, text); got.Low > n || got.High < n {
				t.Fatalf("%s: %d tokens are not between %d and %d", codec.GetName(), n, got.Low, got.High)
			}
		}
	})
}

func TestHighIsAtMostTwoAndAHalfTimesEnglishProse(t *testing.T) {
	held := []string{"o200k_base", "cl100k_base"}
	for _, v := range vocabularies(t) {
		var worst, least float64 = 0, 1
		for name, text := range files(t) {
			if !strings.HasPrefix(name, "english-") {
				continue
			}
			n, got := float64(v.Counts[name][0]), Text(text)
			worst, least = max(worst, float64(got.High)/n), min(least, float64(got.Low)/n)
			if float64(got.High) > 2.5*n && slices.Contains(held, v.Name) {
				t.Errorf("%s in %s: High is %d for %.0f tokens", name, v.Name, got.High, n)
			}
		}
		t.Logf("%-13s of English prose: High is at most %.2f times the count, Low at least %.2f times", v.Name, worst, least)
	}
}

// Low counts word beginnings, and a token contains at most one: therefore Low is never above the count.
func TestNoTokenContainsTwoWordBeginnings(t *testing.T) {
	for _, codec := range codecs(t) {
		tokens := 0
		for id := range uint(200_000) {
			token, err := codec.Decode([]uint{id})
			if err != nil {
				continue
			}
			tokens++
			for _, before := range []byte("\n a1'A\x80") { // a byte of each class
				m := Meter{before: before}
				m.Add([]byte(token))
				if m.seen() > 1 {
					t.Errorf("%s: %q begins %d words", codec.GetName(), token, m.seen())
				}
			}
		}
		if tokens < 50_000 {
			t.Errorf("%s: only %d tokens", codec.GetName(), tokens)
		}
	}
	control := []string{"[toxicity=0]"} // a control token of the training data
	for _, v := range vocabularies(t) {
		for _, token := range v.Spanning {
			if !slices.Contains(control, token) {
				t.Errorf("%s: %q begins two words", v.Name, token)
			}
		}
	}
}

func TestAMeterGivesTheSameBoundsHoweverTheTextIsCut(t *testing.T) {
	texts := mixtures(t)
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(texts.Draw(t, "text"))
		var m Meter
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(0, min(len(rest), 100)).Draw(t, "piece")
			m.Add(rest[:n])
			m.Bounds()
			rest = rest[n:]
		}
		if got, want := m.Bounds(), Text(text); got != want {
			t.Fatalf("in pieces %v, at once %v", got, want)
		}
	})
}

func TestHighIsNeverOverTheBytesByMoreThanFour(t *testing.T) {
	texts := mixtures(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(texts, func(s string) []byte { return []byte(s) })).Draw(t, "text")
		got := Text(text)
		if got.High > int64(len(text))+spare || got.Low > got.High || got.Low < 0 {
			t.Fatalf("%v for %d bytes", got, len(text))
		}
	})
	if got := Text([]byte(strings.Repeat("qi 1", 100))); got.High != 400+spare { // whose spaces are priced twice
		t.Errorf("400 bytes are at most %d", got.High)
	}
	if got := Text(nil); got != (Bounds{}) {
		t.Errorf("nothing is %v", got)
	}
}

// A long run without gaps costs a token per byte, even when each pair in it is frequent: it is not prose.
func TestARunWithoutGapsCountsByItsBytes(t *testing.T) {
	for _, unit := range []string{"e", "er", "the", "tion", "iof", "abc", "a"} {
		text := strings.Repeat(unit, 5_000)
		if got := Text([]byte(text)); got.High < int64(len(text)-block) {
			t.Errorf("%s... is at most %d of %d bytes", unit, got.High, len(text))
		}
	}
}

// The cheapest texts stay within the documented ratio for texts constructed against the table.
func TestHighIsThreeTenthsOfTheBytesAtLeast(t *testing.T) {
	for _, word := range []string{"ererererererere ", "thethethethethe ", "iofiofiofiof ", "quququququ "} {
		text := strings.Repeat(word, 400)
		if got := Text([]byte(text)); got.High < int64(len(text))*3/10 {
			t.Errorf("%s... is at most %d of %d bytes", word, got.High, len(text))
		}
	}
}

func TestBoundsAllocateNothing(t *testing.T) {
	for name, text := range files(t) {
		body := requestOf(t, string(text))
		if n := testing.AllocsPerRun(5, func() { Text(text); Body(body) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
