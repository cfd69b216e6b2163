package redact

import (
	"encoding/base64"
	"strings"
	"testing"
)

// wrapped breaks a text into lines of n characters, as the tools that encode files do.
func wrapped(text string, n int) string {
	var lines []string
	for ; len(text) > n; text = text[n:] {
		lines = append(lines, text[:n])
	}
	return strings.Join(append(lines, text), "\n")
}

func TestEveryTokenIsFoundInBase64(t *testing.T) {
	for _, p := range Samples(newRand()) {
		if p.Rule == "base64" || strings.ContainsAny(p.Secret, "~?>") { // these few become + or /, which probes exclude
			continue
		}
		for _, before := range []string{"", "a ", "ab ", "the key is: "} {
			text := before + p.Text()
			if base64.RawStdEncoding.EncodedLen(len(text)) < minBase64 {
				continue
			}
			if before != "" && p.Before == "" && p.Rule != "vendor" {
				text = before + p.Text() + " and more, so that lines are wrapped somewhere"
			}
			for name, encoding := range map[string]*base64.Encoding{"standard": base64.StdEncoding, "raw": base64.RawStdEncoding, "for URLs": base64.URLEncoding} {
				code := encoding.EncodeToString([]byte(text))
				for _, doc := range []string{code, "x: " + code + "\n", `{"data":"` + code + `"}`, "line\n" + wrapped(code, 76) + "\nend"} {
					clean, _ := JSON([]byte(doc))
					if strings.Contains(string(clean), code[8:20]) {
						t.Fatalf("%s, %s: %q of %q became %q", p.Rule, name, doc, text, clean)
					}
				}
			}
		}
	}
}

// An access key id of AWS is shorter than a run that is sure to be probed. So its base64 has a shape of its own.
func TestAnAccessKeyIDIsFoundInBase64(t *testing.T) {
	for _, shape := range []string{"AKIA{k:16}", "ASIA{k:16}"} {
		code := base64.StdEncoding.EncodeToString([]byte(sampleOfShape(newRand(), &rule{}, parseShape(shape)).Secret))
		if clean, _ := Text([]byte("x " + code + " y")); string(clean) != "x [redacted]= y" {
			t.Errorf("%s became %s", code, clean)
		}
	}
}

func TestBase64WithoutACredentialStays(t *testing.T) {
	for _, text := range []string{
		base64.StdEncoding.EncodeToString([]byte("There is no credential in this text, which is only text and goes on and on.")),
		base64.StdEncoding.EncodeToString(noise(600)), wrapped(base64.StdEncoding.EncodeToString(noise(600)), 76),
		"-----------------------------------------------------", "================================================", "____________________________________",
		"sovereign/internal/plane/gateway/request/parse/and/more", "TestThatAVeryLongNameOfAFunctionInGoIsNoBase64AtAll", strings.Repeat("abcdefgh", 20),
	} {
		for _, doc := range []string{text, quoted(text), quoted("x\n" + text)} {
			if clean, found := JSON([]byte(doc)); string(clean) != doc || found != 0 {
				t.Errorf("%s became %s", doc, clean)
			}
		}
	}
}

// TestBase64IsFoundBehindARunThatIsNoText varies the length of the run before, since a scan takes many characters at
// once.
func TestBase64IsFoundBehindARunThatIsNoText(t *testing.T) {
	code := base64.StdEncoding.EncodeToString([]byte("user: me\nkey: sk-ant-api03-abcdefghij0123456789\n"))
	image := base64.StdEncoding.EncodeToString(noise(300))
	for _, between := range []string{"\n", `\n`, `\u000a`, ",", ":", `"`, " "} {
		for n := 1; n < len(image); n++ {
			if clean, _ := Text([]byte(image[:n] + between + code)); strings.Contains(string(clean), code[:20]) {
				t.Fatalf("missed behind %d characters and %q", n, between)
			}
		}
	}
}
