package sketch_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/text/sketch"
)

// Stored sketches are void where one of these fails: the algorithm may not change.
func TestASketchIsTheSameForAllTime(t *testing.T) {
	var many strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&many, "the quick word%d ", i*i)
	}
	long := many.String()
	for text, want := range map[string]string{
		"":      "5341e6b2646979a7 [0000 0000] 377d35dea8e40225",
		"hello": "f77ac40e2b7c862f [6d78 40b8] f3316bbf0ffc21e5",
		"You are a helpful assistant. Answer briefly.": "7e76195f451b0862 [0423 320c] 8f02d4b82f428156",
		"Straße ÉTÉ Ελλάδα Привет Đặng 你是在线客服助手。 ありがとう ภาษาไทย 👋 naïve": "bd115f934e13de2c [edd6 deed] ae4acce3f8509721",
		"\xff\xfe broken \xc3": "5a015fdacba34cbd [dc0a 5f39] 76e11eea01506b8e",
		long:                   "db563ff71f2157f3 [556d eac0] fa7bf179b85b50ec",
	} {
		s := sketch.Of(text)
		hash := sha256.Sum256(s.Bytes())
		keys := s.Bands()
		got := fmt.Sprintf("%x %04x %016x", hash[:8], s[:2], keys[31])
		if got != want {
			t.Errorf("%.40q: %s", text, got)
		}
	}
}

func TestWordsAreReadWithoutRegardToCaseSpaceAndPunctuation(t *testing.T) {
	for _, same := range [][2]string{
		{"You are HELPFUL.", "  you, are\n\thelpful"},
		{"ÉTÉ À PARIS", "été à paris"},
		{"ΑΒΓ Привет", "αβγ «ПРИВЕТ»"},
		{"", " \n—…。 👋"},
		{"你好，世界", "你 好 世 界"},
		{"a b a b a b a b", "a b a b a"},
	} {
		if sketch.Of(same[0]) != sketch.Of(same[1]) {
			t.Errorf("%q and %q differ", same[0], same[1])
		}
	}
	for _, other := range [][2]string{
		{"a", ""}, {"a", "b"}, {"a b", "b a"}, {"ab", "a b"}, {"a b", "a b c"}, {"你好", "好你"}, {"é", "e"},
	} {
		if s := sketch.Of(other[0]).Similarity(sketch.Of(other[1])); s > 0.75 {
			t.Errorf("%q and %q are alike by %v", other[0], other[1], s)
		}
	}
}

func text(t *rapid.T, name string) string {
	words := rapid.SliceOf(rapid.SampledFrom(strings.Fields("the of and to in a is that for it Ä ß 你 好 été you're"))).Draw(t, name)
	return strings.Join(words, " ")
}

func TestSimilarityIsSymmetricAndOneOfEquals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := text(t, "one"), rapid.OneOf(rapid.Custom(func(t *rapid.T) string { return text(t, "other") }), rapid.String()).Draw(t, "other")
		a, b := sketch.Of(one), sketch.Of(other)
		if a != sketch.Of(strings.Clone(one)) || a.Similarity(a) != 1 {
			t.Fatalf("%q is not like itself", one)
		}
		if s := a.Similarity(b); s != b.Similarity(a) || s < 0 || s > 1 {
			t.Fatalf("%q and %q: %v and %v", one, other, s, b.Similarity(a))
		}
	})
}

func TestASketchIsStoredAndReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sketch.Of(text(t, "text"))
		if again, err := sketch.Parse(s.Bytes()); err != nil || again != s {
			t.Fatalf("%v, %v", again, err)
		}
	})
	for _, size := range []int{0, 1, sketch.Size - 1, sketch.Size + 1} {
		if _, err := sketch.Parse(make([]byte, size)); err == nil {
			t.Errorf("reads %d bytes", size)
		}
	}
}

// pair is two texts of a known Jaccard similarity: so many shingles in both, and so many in each alone. Every other
// word is the same, so that a word that one text has alone makes two shingles that it has alone.
func pair(r *rand.Rand, both, alone int) (a, b string) {
	var one, other strings.Builder
	line := func() string { return fmt.Sprintf("x %x ", r.Uint64()) }
	for range both / 2 {
		l := line()
		one.WriteString(l)
		other.WriteString(l)
	}
	for range alone / 2 {
		one.WriteString(line())
		other.WriteString(line())
	}
	one.WriteString("x")
	other.WriteString("x")
	return one.String(), other.String()
}

func TestTheEstimateIsOfTheExpectedError(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, both := range []int{2, 10, 40, 200} {
		for _, ratio := range []float64{0, 0.125, 0.5, 1, 2, 4} {
			alone := int(float64(both)*ratio) / 2 * 2
			truth := float64(both) / float64(both+2*alone)
			const times = 60
			var sum, squares float64
			for range times {
				a, b := pair(r, both, alone)
				off := sketch.Of(a).Similarity(sketch.Of(b)) - truth
				sum, squares = sum+off, squares+off*off
			}
			expected := math.Sqrt(truth * (1 - truth) / 128)
			bias, deviation := sum/times, math.Sqrt(squares/times)
			if math.Abs(bias) > 4*expected/math.Sqrt(times)+0.001 || deviation > 1.2*expected+0.001 {
				t.Errorf("%d shared, %d alone: %v is estimated with bias %.4f and deviation %.4f, expected %.4f", both, alone, truth, bias, deviation, expected)
			}
		}
	}
}

func share(a, b sketch.Sketch) bool {
	keys := map[uint64]bool{}
	for _, key := range a.Bands() {
		keys[key] = true
	}
	for _, key := range b.Bands() {
		if keys[key] {
			return true
		}
	}
	return false
}

func TestBandsAreSharedByTheCurve(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, c := range []struct{ both, alone int }{{20, 90}, {60, 70}, {100, 50}, {150, 50}, {140, 30}, {180, 20}} {
		truth := float64(c.both) / float64(c.both+2*c.alone)
		const times = 200
		shared := 0.0
		for range times {
			a, b := pair(r, c.both, c.alone)
			if share(sketch.Of(a), sketch.Of(b)) {
				shared++
			}
		}
		want := 1 - math.Pow(1-math.Pow(truth, 4), sketch.Bands)
		if got := shared / times; math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/times)+0.02 {
			t.Errorf("of similarity %.2f, %.3f share a key, not %.3f", truth, got, want)
		} else if truth >= sketch.Near && got < 0.995 {
			t.Errorf("of near-duplicates (%.2f) only %.3f share a key", truth, got)
		}
	}
}

func TestKeysOfDifferentPlacesDiffer(t *testing.T) {
	keys := map[uint64]bool{}
	for _, key := range (sketch.Sketch{}).Bands() {
		keys[key] = true
	}
	if len(keys) != sketch.Bands {
		t.Errorf("%d keys of a sketch whose rows are all alike", len(keys))
	}
}

func TestALongTextOfFewShinglesIsSketchedAsTheyAre(t *testing.T) {
	for _, words := range []string{"a ", "a b ", "one two three four five six seven "} {
		short, long := sketch.Of(strings.Repeat(words, 3)), sketch.Of(strings.Repeat(words, 20_000))
		if short != long {
			t.Errorf("%q: alike by %v", words, short.Similarity(long))
		}
	}
	early, late := prose(60), " after which there are some more words that were not seen before"
	if short, long := sketch.Of(early+early+late), sketch.Of(strings.Repeat(early, 2000)+late); short != long {
		t.Errorf("what comes late: alike by %v", short.Similarity(long))
	}
}

// The tables of the standard library grow with Unicode; what a sketch takes from them may not.
func TestCharactersAreReadTheSameForAllTime(t *testing.T) {
	hash := sha256.New()
	for r := rune(0); r < 0x20100; r = r + 1 + r/0x3100*0x1f {
		hash.Write(sketch.Of("a" + string(r) + "b c").Bytes())
	}
	if got := hex.EncodeToString(hash.Sum(nil)[:8]); got != "0c51d5f8a7c4f4a4" {
		t.Errorf("characters are read otherwise than they were: %s", got)
	}
}

func benchmark(b *testing.B, text string) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		sketch.Of(text)
	}
}

// prose is text of words as long as English ones are, of which some come often and most seldom.
func prose(words int) string {
	r := rand.New(rand.NewPCG(1, 1))
	var b strings.Builder
	for range words {
		word := rand.New(rand.NewPCG(uint64(math.Exp(r.Float64()*9)), 0))
		for range 1 + word.IntN(9) {
			b.WriteByte(byte('a' + word.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()
}

func BenchmarkOfProse(b *testing.B)      { benchmark(b, prose(20_000)) }
func BenchmarkOfShort(b *testing.B)      { benchmark(b, prose(60)) }
func BenchmarkOfRepetition(b *testing.B) { benchmark(b, strings.Repeat("a b ", 50_000)) }
func BenchmarkOfChinese(b *testing.B) {
	benchmark(b, strings.Repeat("请用礼貌简洁的中文回答关于订单的问题", 500))
}

func BenchmarkSimilarity(b *testing.B) {
	one, other := sketch.Of(prose(100)), sketch.Of(prose(90))
	for b.Loop() {
		one.Similarity(other)
	}
}
