package redact

import (
	"strings"
	"testing"
)

// Secrets without a shape of their own are found by the words around them.
func TestSecretsAreFoundByTheWordsAroundThem(t *testing.T) {
	rng := newRand()
	aws := randomString(rng, b64Sample, 20) + "/" + randomString(rng, b64Sample, 19)
	id := sampleOfShape(rng, &rule{}, parseShape("AKIA{k:16}")).Secret
	sig := strings.Repeat(randomString(rng, alnum, 10), 4) + "abc%3D"
	for text, want := range map[string]string{
		"My AWS secret is " + aws + " and I need help":            "My AWS secret is [redacted] and I need help",
		"the secret access key is " + aws:                         "the secret access key is [redacted]",
		"AWS credentials for prod, keep them safe: " + aws + ".":  "AWS credentials for prod, keep them safe: [redacted].",
		"use " + id + " with " + aws + " please":                  "use [redacted] with [redacted] please",
		id + ":" + aws:                                            "[redacted]:[redacted]",
		id + "\n" + aws + "\n":                                    "[redacted]\n[redacted]\n",
		"https://x.blob.core.windows.net/c?sv=2024&sig=" + sig:    "https://x.blob.core.windows.net/c?sv=2024&sig=[redacted]",
		"https://x.blob.core.windows.net/c?sv=1&amp;sig=" + sig:   "https://x.blob.core.windows.net/c?sv=1&amp;sig=[redacted]",
		"the SAS has sig=" + sig + " in it":                       "the SAS has sig=[redacted] in it",
		"c%3Fsv%3D2024%26sig%3D" + sig + "&x=1":                   "c%3Fsv%3D2024%26sig%3D[redacted]&x=1",
		"machine api.example.com login me password hunter2":       "machine api.example.com login me password [redacted]",
		"machine api.example.com\n  login me\n  password correct": "machine api.example.com\n  login me\n  password [redacted]",
		"machine h\npassword tr0ub4dor&3\nlogin me":               "machine h\npassword [redacted]\nlogin me",
		"default login anonymous password me@example.com":         "default login anonymous password [redacted]",
		"login me account mine password tr0ub4dor":                "login me account mine password [redacted]",
		"new-york-times_x = \"" + aws[:20] + "\"":                 "new-york-times_x = \"[redacted]\"",
	} {
		for _, depth := range []int{0, 1, 2} {
			doc := text
			for range depth {
				doc = quoted(doc)
			}
			clean, _ := JSON([]byte(doc))
			got := string(clean)
			for range depth {
				got = unquoted(got)
			}
			if got != want {
				t.Errorf("at depth %d, %q became %q, want %q", depth, text, got, want)
			}
		}
	}
}

func TestWordsAroundNoSecretChangeNothing(t *testing.T) {
	for _, text := range []string{
		"your login and password must differ", "login or password incorrect", "a login page, a password field",
		"this machine needs a password for the login", "machine learning password managers", "the login password policy",
		"aws s3 cp s3://bucket/some/long/path/to/an/object/with/a/name .", "aws commit 0f4ca30b1e2b7d6026624c9bdaa50ca5f7aa1b2c",
		"the secret of TestThatAVeryLongNameOfAFunctionInGoIsNo", "the token of the day is sunshine", "the secret to it is patience",
		"sig=true", "sig=" + strings.Repeat("x", 60), "the secret service is https://example.com/a", "design=abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789ABCD",
		"machine x login y password ${PASSWORD}", "machine x login y password <password>",
	} {
		for _, doc := range []string{text, quoted(text)} {
			if clean, found := JSON([]byte(doc)); string(clean) != doc || found != 0 {
				t.Errorf("%s became %s", doc, clean)
			}
		}
	}
}

func TestVendorsAreWords(t *testing.T) {
	for _, vendor := range vendors {
		if name := strings.TrimPrefix(vendor, "~"); name == vendor || strings.Trim(name, lower+"_-") != "" {
			t.Errorf("%q is no name in lower case after a tilde", vendor)
		}
	}
}
