package redact

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cleanFiles returns the redacted text of some files: a typical request has no credentials.
func cleanFiles(b *testing.B, patterns ...string) string {
	b.Helper()
	var all []byte
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				b.Fatal(err)
			}
			text, _ = Text(text)
			all = append(all, text...)
		}
	}
	return string(all[:min(len(all), 512<<10)])
}

func prose(b *testing.B) string { return cleanFiles(b, "../../../docs/*.md", "../../../*.md") }
func code(b *testing.B) string {
	return cleanFiles(b, "../../store/api/*.go", "../../plane/gateway/*.go", "../../store/db/*.go")
}

// body returns a chat request with text as its message.
func body(text string) []byte {
	return []byte(`{"model":"m","messages":[{"role":"system","content":"You help."},{"role":"user","content":` + quoted(text) + `}]}`)
}

func noise(n int) []byte {
	raw, rng := make([]byte, n), rand.New(rand.NewPCG(1, 2))
	for i := range raw {
		raw[i] = byte(rng.Uint32())
	}
	return raw
}

func measure(b *testing.B, doc []byte) {
	b.Helper()
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		JSON(doc)
	}
}

func BenchmarkProse(b *testing.B) { measure(b, body(prose(b))) }
func BenchmarkCode(b *testing.B)  { measure(b, body(code(b))) }

// BenchmarkNested redacts code in the arguments of a tool call: JSON in a JSON string.
func BenchmarkNested(b *testing.B) { measure(b, body(quoted(code(b)))) }

// BenchmarkNumbered redacts the same from a client that writes <, > and & as \u escapes, so that the text is decoded.
func BenchmarkNumbered(b *testing.B) {
	inner, _ := json.Marshal(code(b))
	doc, _ := json.Marshal([]string{string(inner)})
	measure(b, doc)
}

func BenchmarkBase64(b *testing.B) {
	measure(b, body("data:image/png;base64,"+base64.StdEncoding.EncodeToString(noise(384<<10))))
}

// BenchmarkFound redacts prose with a credential in every 4000 characters.
func BenchmarkFound(b *testing.B) {
	text, rng := prose(b), newRand()
	var all strings.Builder
	for at := 0; at+4000 < len(text); at += 4000 {
		all.WriteString(text[at:at+4000] + " " + sampleOfShape(rng, &rules[1], parseShape(rules[1].shapes[0])).Secret + " ")
	}
	measure(b, body(all.String()))
}

func BenchmarkWorst(b *testing.B) {
	for name, text := range worstUnits() {
		if strings.HasSuffix(name, " cut") {
			continue
		}
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) { measure(b, []byte(`"`+strings.Repeat(text, (512<<10)/len(text))+`"`)) })
	}
}
