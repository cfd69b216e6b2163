package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// message returns a list of one message with these text parts, an image among them.
func message(parts ...string) string {
	var all []string
	for i, part := range parts {
		if all = append(all, `{"type":"text","text":`+quoted(part)+`}`); i == 0 {
			all = append(all, `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`)
		}
	}
	return `[{"role":"system","content":"Be kind."},{"role":"user","content":[` + strings.Join(all, ",") + `]}]`
}

// leftover returns a half of a secret that a text still has, or "".
func leftover(text, secret string) string {
	for _, half := range []string{secret[:len(secret)/2], secret[len(secret)/2:]} {
		if len(half) > 3 && strings.Contains(text, half) {
			return half
		}
	}
	return ""
}

func TestACredentialThatIsSplitOverPartsIsRedacted(t *testing.T) {
	rules, halves := map[string]bool{}, map[string]string{}
	for _, p := range Samples(newRand()) {
		rules[p.Rule] = true
		text := "I use " + p.Text()
		if p.Before != "" || p.Rule == "airtable" || p.Rule == "vault" {
			text = p.Text()
		}
		cut := len(text) - len(p.After) - len(p.Secret)/2 - len(p.Secret)%2
		for _, doc := range []string{message(text[:cut], text[cut:]), message(strings.Repeat("word ", 3000)+text[:cut], text[cut:]+strings.Repeat(" word", 3000))} {
			var e Exchange
			clean := e.Messages([]byte(doc))
			if !json.Valid(clean) {
				t.Fatalf("%s: %s is no JSON", p.Rule, clean)
			}
			if half := leftover(string(clean), p.Secret); half != "" {
				halves[p.Rule] = half
			}
		}
	}
	if len(halves) > 0 {
		t.Errorf("of %d kinds, %d leave a half: %v", len(rules), len(halves), halves)
	}
}

func TestANameInOnePartAndItsSecretInTheNextAreRedacted(t *testing.T) {
	var e Exchange
	clean := e.Messages([]byte(message("the password=", "hunter2x\nand more")))
	if string(clean) != message("the password=", "[redacted]\nand more") {
		t.Errorf("%s", clean)
	}
}

func TestPartsWithoutASecretStay(t *testing.T) {
	for _, doc := range []string{
		message("one", "two", "three"), message("", ""), message(strings.Repeat("é\n\"", 4000), strings.Repeat(`\u0041`, 4000)), `[]`, `{}`, `null`, ``, `{"content":[{"text":`,
		`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `[{"content":[{"text":1},{"text":null},[],"text"]}]`,
	} {
		var e Exchange
		if clean := e.Messages([]byte(doc)); string(clean) != doc {
			t.Errorf("%.200s became %.200s", doc, clean)
		}
	}
}

// Whatever is in the parts, and wherever they are cut, what is stored is JSON, with the same number of parts.
func TestPartsStayJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			text := texts().Draw(t, "text")
			return strings.Repeat(text, 1+rapid.SampledFrom([]int{0, 0, 0, 200}).Draw(t, "times"))
		}), 2, 5).Draw(t, "parts")
		var e Exchange
		clean := e.Messages([]byte(message(parts...)))
		var got []struct{ Content json.RawMessage }
		var content []any
		if json.Unmarshal(clean, &got) != nil || json.Unmarshal(got[1].Content, &content) != nil || len(content) != len(parts)+1 {
			t.Fatalf("%q became %s", parts, clean)
		}
	})
}

func BenchmarkParts(b *testing.B) {
	text := prose(b)
	doc := []byte(message(text[:100_000], text[100_000:]))
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		var e Exchange
		e.Messages(doc)
	}
}
