package token

import (
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the generated part of the corpus anew; testdata/counts.json must follow")

const corpus = "testdata/corpus"

const (
	small       = "abcdefghijklmnopqrstuvwxyz"
	capital     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits      = "0123456789"
	punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
)

// A source draws the parts of generated texts.
type source struct{ *rand.Rand }

func (s source) of(alphabet string, n int) string {
	runes := []rune(alphabet)
	out := make([]rune, n)
	for i := range out {
		out[i] = runes[s.IntN(len(runes))]
	}
	return string(out)
}

func (s source) between(low, high rune, n int) string {
	var out strings.Builder
	for range n {
		out.WriteRune(low + s.Int32N(high-low+1))
	}
	return out.String()
}

func (s source) bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(s.Uint32())
	}
	return out
}

// valid is n runes of any kind, assigned or not.
func (s source) valid(n int, most rune) string {
	var out strings.Builder
	for range n {
		r := s.Int32N(most)
		for !utf8.ValidRune(r) {
			r = s.Int32N(most)
		}
		out.WriteRune(r)
	}
	return out.String()
}

func (s source) words(n int, word func() string) string {
	words := make([]string, n)
	for i := range words {
		words[i] = word()
	}
	return strings.Join(words, " ")
}

// kinds are what the generated part of the corpus is made of, a file each; the random mixtures draw from the same.
var kinds = map[string]func(s source) string{
	"base64":       func(s source) string { return base64.StdEncoding.EncodeToString(s.bytes(90)) },
	"hex":          func(s source) string { return hex.EncodeToString(s.bytes(40)) },
	"hex-capitals": func(s source) string { return strings.ToUpper(hex.EncodeToString(s.bytes(40))) },
	"uuids": func(s source) string {
		b := s.bytes(16)
		return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	},
	"digits":  func(s source) string { return s.of(digits, 60) },
	"numbers": func(s source) string { return s.words(12, func() string { return s.of(digits, 1+s.IntN(7)) }) },
	"decimals": func(s source) string {
		return s.words(8, func() string { return s.of(digits, 1+s.IntN(3)) + "." + s.of(digits, 2) })
	},
	"letters":      func(s source) string { return s.of(small, 60) },
	"capitals":     func(s source) string { return s.of(capital, 60) },
	"mixed-case":   func(s source) string { return s.of(small+capital, 60) },
	"letter-digit": func(s source) string { return s.of(small+digits, 60) },
	"nonsense":     func(s source) string { return s.words(14, func() string { return s.of(small, 1+s.IntN(12)) }) },
	"names": func(s source) string {
		return s.words(12, func() string { return s.of(capital, 1) + s.of(small, 1+s.IntN(9)) })
	},
	"short-words": func(s source) string { return s.words(20, func() string { return s.of(small, 2) }) },
	"initials":    func(s source) string { return s.words(20, func() string { return s.of(capital, 1) + s.of(small, 1) }) },
	"syllables": func(s source) string {
		return s.words(12, func() string {
			return strings.Repeat(s.of("bcdfghjklmnprstvwz", 1)+s.of("aeiou", 1), 1+s.IntN(2)) + s.of("bdfgklmnprst", 1) + s.of("aeiouy", 1)
		})
	},
	"vowels":      func(s source) string { return s.of("aeiouy", 60) },
	"consonants":  func(s source) string { return s.of("bcdfghjklmnpqrstvwxz", 60) },
	"punctuation": func(s source) string { return s.of(punctuation, 60) },
	"spaced-punctuation": func(s source) string {
		return s.words(20, func() string { return s.of(punctuation, 1+s.IntN(3)) })
	},
	"whitespace": func(s source) string { return s.of("    \t\r\u00a0\u3000", 60) },
	"indentation": func(s source) string {
		return strings.Repeat(" ", s.IntN(40)) + s.of(small, 3) + strings.Repeat("\t", s.IntN(12))
	},
	"repeated": func(s source) string {
		return strings.Repeat(s.of(small+capital+digits+punctuation+" \t", 1), 1+s.IntN(150))
	},
	"repeated-pairs": func(s source) string {
		return strings.Repeat(s.of(small+digits+punctuation, 2+s.IntN(2)), 20+s.IntN(40))
	},
	"ascii":   func(s source) string { return s.of(small+capital+digits+punctuation+" ", 60) },
	"control": func(s source) string { return s.between(1, 9, 10) + s.between(11, 127, 40) },
	"latin":   func(s source) string { return s.between(0xa1, 0x24f, 40) },
	"greek": func(s source) string {
		return s.words(6, func() string { return s.between(0x391, 0x3c9, 1+s.IntN(9)) })
	},
	"cyrillic": func(s source) string {
		return s.words(6, func() string { return s.between(0x410, 0x44f, 1+s.IntN(9)) })
	},
	"arabic": func(s source) string {
		return s.words(6, func() string { return s.between(0x621, 0x64a, 1+s.IntN(7)) })
	},
	"indic":  func(s source) string { return s.between(0x905, 0xdff, 30) },
	"han":    func(s source) string { return s.between(0x4e00, 0x9fff, 30) },
	"kana":   func(s source) string { return s.between(0x3041, 0x30fe, 30) },
	"hangul": func(s source) string { return s.between(0xac00, 0xd7a3, 30) },
	"emoji": func(s source) string {
		return s.of("👩🧑👨🏳🤷👍🙏🏽🏿🇩🇪🇯🇵\u200d\ufe0f💻🚀🌈♀♂❤🔥😀😂🥳🫠", 30)
	},
	"symbols": func(s source) string { return s.between(0x2010, 0x2bff, 30) },
	"plane":   func(s source) string { return s.valid(30, 0xffff) },
	"utf8":    func(s source) string { return s.valid(30, unicode.MaxRune) },
}

const lines = 12 // of a generated file

// generate is the text of a kind, the same every time.
func generate(kind string) string {
	seed := uint64(len(kind))
	for _, r := range kind {
		seed = seed*31 + uint64(r)
	}
	s := source{rand.New(rand.NewPCG(seed, 1))}
	var out strings.Builder
	for range lines {
		out.WriteString(strings.ReplaceAll(kinds[kind](s), "\n", " ") + "\n")
	}
	return out.String()
}

func TestTheGeneratedCorpusIsUpToDate(t *testing.T) {
	for kind := range kinds {
		file := filepath.Join(corpus, "random-"+kind+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(generate(kind)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != generate(kind) {
			t.Errorf("%s is not what is generated: %v", file, err)
		}
	}
}

// files are the texts of the corpus by name.
func files(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(corpus, "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files: %v", len(paths), err)
	}
	all := map[string][]byte{}
	for _, file := range paths {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = content
	}
	return all
}
