package redact

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPartsOfAKnownSecretAreRemoved(t *testing.T) {
	const key = "sk-proj-Ab1Cd2Ef3Gh4Ij5Kl6"
	for text, want := range map[string]string{
		"":              "",
		"no key at all": "no key at all",
		"the key sk-proj-Ab1Cd2Ef3Gh4Ij5Kl6 is wrong":       "the key [redacted] is wrong",
		"Incorrect API key provided: sk-proj-********5Kl6.": "Incorrect API key provided: [redacted].",
		"key sk-pr...Kl6 expired":                           "key [redacted] expired",
		"key sk-…":                                          "key [redacted]",
		"ends in ••••5Kl6":                                  "ends in [redacted]",
		"prefix=sk-proj-Ab1, the rest hidden":               "prefix=[redacted], the rest hidden",
		"part Cd2Ef3Gh and Gh4Ij5Kl6":                       "part [redacted] and [redacted]",
		"seven Cd2Ef3G stay":                                "seven Cd2Ef3G stay",
		"a *** mask and ... dots":                           "a *** mask and ... dots",
		"sk-other*****wxyz is not ours":                     "sk-other*****wxyz is not ours",
	} {
		if got := Known(text, key); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := Known("the key abc and abcd", "abc"); got != "the key [redacted] and [redacted]d" {
		t.Errorf("a short key: %q", got)
	}
	if got := Known("text", ""); got != "text" {
		t.Errorf("no key: %q", got)
	}
}

func TestNoPartOfAKnownSecretIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[a-zA-Z0-9_.-]{8,60}`).Draw(t, "key")
		from := rapid.IntRange(0, len(key)-minFragment).Draw(t, "from")
		to := rapid.IntRange(from+minFragment, len(key)).Draw(t, "to")
		text := rapid.StringN(0, 20, -1).Draw(t, "before") + key[from:to] + rapid.StringN(0, 20, -1).Draw(t, "after")
		clean := strings.Split(Known(text, key), Mark)
		for _, rest := range clean {
			for at := 0; at+minFragment <= len(rest); at++ {
				if strings.Contains(key, rest[at:at+minFragment]) {
					t.Fatalf("%q of %q is left of %q: %q", rest[at:at+minFragment], key, text, clean)
				}
			}
		}
	})
}
