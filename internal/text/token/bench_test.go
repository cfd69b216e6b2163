package token

import (
	"bytes"
	"strings"
	"testing"
)

const benchSize = 64 << 10

func fill(text []byte) []byte { return bytes.Repeat(text, benchSize/len(text)+1) }

func BenchmarkText(b *testing.B) {
	all := files(b)
	for _, name := range []string{"english-story", "code-typescript", "russian", "chinese", "random-base64"} {
		b.Run(name, func(b *testing.B) {
			text := fill(all[name+".txt"])
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				Text(text)
			}
		})
	}
}

func BenchmarkBody(b *testing.B) {
	all := files(b)
	prose, code, russian := string(fill(all["english-story.txt"])), string(fill(all["code-typescript.txt"])), string(fill(all["russian.txt"]))
	turns := strings.SplitAfter(prose, ". ")
	always := func() bool { return true }
	bodies := map[string][]byte{
		"prose":   requestOf(b, prose),
		"turns":   requestOf(b, turns...),
		"code":    requestOf(b, code),
		"escaped": []byte(`{"messages":[{"content":` + quote(russian, always) + `}]}`),
		"picture": []byte(`{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,` + strings.Repeat("QUJD", benchSize/4) + `"}}]}]}`),
	}
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				Body(body)
			}
		})
	}
}
