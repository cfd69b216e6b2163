package segment_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/text/segment"
	"sovereign/internal/text/sketch"
)

// Stored names and prints are void where this fails.
func TestNamesAreTheSameForAllTime(t *testing.T) {
	const prompt = "Today is 2026-11-15. You help Alice (id 4711)."
	if got := segment.Exact(prompt); got != "v_r3740f4qk1186dvm" {
		t.Errorf("the prompt is %s", got)
	}
	if got := segment.Name(prompt); got != "seg_gbz8k1g2hn0p1scd" {
		t.Errorf("its family is %s", got)
	}
	of := sha256.Sum256(segment.Of(strings.Repeat(prompt, 50) + "你好" + strings.Repeat("a b c ", 100)).Bytes())
	if got := hex.EncodeToString(of[:8]); got != "e0d95c145ebed87a" {
		t.Errorf("a print is %s", got)
	}
}

func TestANameIsOfOnePrompt(t *testing.T) {
	if segment.Exact("") != "" || segment.Name("") != "" {
		t.Error("no prompt has a name")
	}
	shape := regexp.MustCompile(`^(v|seg)_[0-9a-z]{16}$`)
	rapid.Check(t, func(t *rapid.T) {
		one, other := rapid.StringN(1, -1, -1).Draw(t, "one"), rapid.StringN(1, -1, -1).Draw(t, "other")
		if !shape.MatchString(segment.Exact(one)) || !shape.MatchString(segment.Name(one)) {
			t.Fatalf("%s, %s", segment.Exact(one), segment.Name(one))
		}
		if (one == other) != (segment.Exact(one) == segment.Exact(other)) {
			t.Fatalf("%q and %q are told apart wrongly", one, other)
		}
	})
}

func TestATemplateHasNoneOfTheValues(t *testing.T) {
	for prompt, want := range map[string]string{
		"":                             "",
		"You are a helpful assistant.": "You are a helpful assistant.",
		"Today is 2026-11-15. You help Alice (id 4711).": "Today is <*>. You help Alice (id <*>).",
		"It is Monday, January 2, 2006 3:04 PM UTC now":  "It is <*> now",
		"It is 15 Nov 2026, 14:05:00.123+01:00 now":      "It is <*> now",
		"Wednesday: rest":                                                          "<*>: rest",
		"On Tuesday you may rest.":                                                 "On <*> you may rest.",
		"You may march in August if you must":                                      "You may march in August if you must",
		"at 2026-11-15T14:05:00Z!":                                                 "at <*>!",
		"user 6ba7b810-9dad-11d1-80b4-00c04fd430c8, key 0xDEADBEEF":                "user <*>, key <*>",
		"order ORD-4711 of a3f9c2d7e1":                                             "order <*> of <*>",
		"write to j.doe+test@mail.example.org.":                                    "write to <*>.",
		"see https://a.example/b?c=d&e#f, or (http://x.example) and www.x.example": "see <*>, or (<*>) and <*>",
		"about -1,234.50 EUR or 15% of $3":                                         "about -<*> EUR or <*>% of $<*>",
		`answer "yes" or "no", not "4711"`:                                         `answer "yes" or "no", not "<*>"`,
		"2026年11月15日，客户编号4711。":                                                    "<*>年<*>月<*>日，客户编号<*>。",
		"1. one\n2. two":                                                           "<*>. one\n<*>. two",
	} {
		if got := segment.Template(prompt); got != want {
			t.Errorf("%q: %q, not %q", prompt, got, want)
		}
	}
}

func TestATemplateIsItsOwnTemplate(t *testing.T) {
	pieces := rapid.SliceOf(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		" ", "\n", ".", ",", ":", "/", "-", "@", "(", "4", "17", "may", "Monday", "jan", "pm", "word", "a@b", "http://", "www.", "é", "\xff", "年",
	})))
	rapid.Check(t, func(t *rapid.T) {
		template := segment.Template(strings.Join(pieces.Draw(t, "pieces"), ""))
		if again := segment.Template(template); again != template {
			t.Fatalf("%q becomes %q", template, again)
		}
		if strings.ContainsAny(template, "0123456789") {
			t.Fatalf("%q has a number", template)
		}
	})
}

func TestPromptsOfOneTemplateHaveOnePrintAndOneName(t *testing.T) {
	const template = "Today is %s. You answer questions about order %s for %s. Be brief. See %s."
	first := fmt.Sprintf(template, "2026-11-15", "4711", "a@example.com", "https://example.com/a")
	later := fmt.Sprintf(template, "Tue, 2 Dec 2026 10:00 UTC", "9e107d9d372bb682", "b.c@example.org", "http://other.example/?q=1")
	if segment.Of(first) != segment.Of(later) || segment.Name(first) != segment.Name(later) {
		t.Errorf("%q and %q differ", segment.Template(first), segment.Template(later))
	}
	if segment.Exact(first) == segment.Exact(later) {
		t.Error("the variants are not told apart")
	}
}

func TestAPrintIsStoredAndReadAgain(t *testing.T) {
	for _, words := range []int{0, 1, 20, 300} {
		p := segment.Of(prose(rand.New(rand.NewPCG(1, 1)), words))
		if again, err := segment.ParsePrint(p.Bytes()); err != nil || again != p {
			t.Errorf("of %d words: %v", words, err)
		}
	}
	for _, size := range []int{0, 1, sketch.Size - 1, 2 * sketch.Size, 3*sketch.Size - 1, 4 * sketch.Size} {
		if _, err := segment.ParsePrint(make([]byte, size)); err == nil {
			t.Errorf("reads %d bytes", size)
		}
	}
}

func TestAPrintTakesAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\x80", "你好", "\n", "a"})).Draw(t, "text"), rapid.IntRange(0, 1000).Draw(t, "times"))
		p := segment.Of(text)
		var f segment.Families
		f.Add("seg_1", p)
		if family, ok := f.Find(p); !ok || family != "seg_1" {
			t.Fatalf("%q is not found", text)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, words := range []int{60, 300, 5000} {
		text := fill(r, "Today is {date}. {name} ({id}): ") + prose(r, words)
		b.Run(strconv.Itoa(words), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				segment.Of(text)
			}
		})
	}
}
