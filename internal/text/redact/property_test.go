package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// pieces are the parts of generated texts: credentials, halves of them, and delimiters.
var pieces = func() []string {
	all := []string{
		" ", "\n", "\t", `"`, "'", "`", `\`, `\\`, `\n`, `\"`, `\u0041`, `\u00e9`, `\/`, "é", "[redacted]", "password", "token=", "key: ", "api_key", " is ", "=", ":", ",", "://",
		"@", "/", "-", "_", ".", "-----BEGIN ", "PRIVATE KEY-----", "-----END ", "eyJ", "sk-", "AKIA", "value", "0x1F", "null", "1234567890", "the quick brown fox", "{", "}", "[", "]", "%3D",
		"Bearer ", "Basic ", " -u ", "<", ">", "&", "$", "\x00", "\u2028", "1e5",
	}
	for i, p := range Samples(newRand()) {
		switch i % 3 {
		case 0:
			all = append(all, p.Text())
		case 1:
			all = append(all, p.Text()[:len(p.Text())/2])
		default:
			all = append(all, p.Secret)
		}
	}
	return all
}()

func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(pieces), rapid.StringN(0, 8, -1)), 0, 12).Draw(t, "parts")
		return strings.Join(parts, "")
	})
}

// documents draws JSON documents, with up to three levels of JSON in strings.
func documents() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var value any = map[string]any{
			texts().Draw(t, "name"): texts().Draw(t, "one"),
			"list":                  []any{texts().Draw(t, "two"), rapid.Float64Range(-1e30, 1e30).Draw(t, "number"), nil, true},
		}
		var doc string
		for range rapid.IntRange(1, 3).Draw(t, "depth") {
			made, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			doc = string(made)
			value = doc
		}
		return doc
	})
}

func checkJSON(t interface {
	Helper()
	Fatalf(string, ...any)
}, doc []byte,
) []byte {
	t.Helper()
	before := bytes.Clone(doc)
	clean, found := JSON(doc)
	if !bytes.Equal(doc, before) {
		t.Fatalf("%s was written to", before)
	}
	if !json.Valid(clean) {
		t.Fatalf("%s became %s, which is no JSON", doc, clean)
	}
	if changed := !bytes.Equal(clean, doc); changed != (found > 0) {
		t.Fatalf("%d found, and %s became %s", found, doc, clean)
	}
	if again, more := JSON(clean); more != 0 || !bytes.Equal(again, clean) {
		t.Fatalf("%s became %s, and that %s", doc, clean, again)
	}
	return clean
}

func TestRedactedJSONIsValidAndRedactingIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkJSON(t, []byte(documents().Draw(t, "doc"))) })
}

func TestRedactingTextIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := texts().Draw(t, "text")
		clean, _ := Text([]byte(text))
		if again, more := Text(clean); more != 0 || !bytes.Equal(again, clean) {
			t.Fatalf("%q became %q, and that %q", text, clean, again)
		}
	})
}

// TestEscapesDoNotChangeWhatIsFound compares a text with some characters escaped and with all of them escaped.
func TestEscapesDoNotChangeWhatIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ReplaceAll(texts().Draw(t, "text"), `\`, "")
		text = strings.Map(func(r rune) rune {
			if r >= 0x80 {
				return '~' // escaped works on bytes, and a byte of a longer character has no escape
			}
			return r
		}, text)
		if hasShortBase64(text) {
			t.Skip("a short run of base64 is found or not, by its place")
		}
		which := rapid.SliceOfN(rapid.Bool(), len(text), len(text)).Draw(t, "which")
		some := escaped(text, func(i int) bool { return which[i] })
		all := escaped(text, func(int) bool { return true })
		one, _ := JSON([]byte(some))
		two, _ := JSON([]byte(all))
		if unquoted(string(one)) != unquoted(string(two)) {
			t.Fatalf("%q became %s or %s", text, one, two)
		}
	})
}

// hasShortBase64 reports whether a text has a run of base64 that is shorter than what is always found, and that decodes to
// text.
func hasShortBase64(text string) bool {
	for run := range strings.FieldsFuncSeq(text, func(r rune) bool { return r >= 0x80 || sextets[r] == 0xff }) {
		for from := 0; from+base64Head <= len(run) && len(run) < minBase64; from++ {
			plain, err := base64.RawStdEncoding.DecodeString(run[from : from+base64Head])
			if err == nil && !slices.ContainsFunc(plain, func(c byte) bool { return c < ' ' || c > '~' }) {
				return true
			}
		}
	}
	return false
}

func TestNoHalfOfASecretRemains(t *testing.T) {
	all := Samples(newRand())
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(all).Draw(t, "Sample")
		around := rapid.SampledFrom([]string{" ", "\n", "\t", "\"\n", ") ("}).Draw(t, "around")
		prose := rapid.SampledFrom([]string{"", "see the log", "first, second", "{\"a\": 1}", "`code`", "é"})
		doc := p.Text()
		doc = prose.Draw(t, "before") + around + doc + around + prose.Draw(t, "after")
		for range rapid.IntRange(0, 3).Draw(t, "depth") {
			doc = quoted(doc)
		}
		clean, _ := JSON([]byte(doc))
		half := len(p.Secret) / 2
		for _, part := range []string{p.Secret[:half], p.Secret[half:]} {
			if half > 3 && bytes.Contains(clean, []byte(part)) {
				t.Fatalf("%s: %q of %s is left in %s", p.Rule, part, doc, clean)
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, p := range Samples(newRand()) {
		f.Add([]byte(p.Text()))
		f.Add([]byte(quoted(quoted(p.Text()))))
	}
	for _, piece := range pieces {
		f.Add([]byte(piece))
	}
	f.Add([]byte(`{"password=":-1.5e+10,"x":"y"}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !json.Valid(doc) {
			doc, _ = json.Marshal(string(doc))
		}
		checkJSON(t, doc)
		Text(doc)
	})
}

func TestHitsAreOrderedAndDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := 0
		for _, h := range find([]byte(documents().Draw(t, "doc")), true) {
			if h.from < at || h.from >= h.to {
				t.Fatalf("%v, after %d", h, at)
			}
			at = h.to
		}
	})
}
