package gateway

import "testing"

func TestATagThatMayBeACredentialIsNotCharged(t *testing.T) {
	for tag, want := range map[string]string{
		"": "", "support": "support", "team-search/v2": "team-search/v2", "2026-11-18": "2026-11-18",
		"internationalization": "internationalization", "release 20261118": "release 20261118",
		"s.4miMM7IJUF2whyjuaBTPy48j": maskedTag, `x = "8TaDvXF0IqUNbJWPhZQ16RzZ"`: maskedTag,
		"sk-ant-api03-AAAA": "sk-ant-api03-AAAA", "0123456789abcdef": maskedTag,
	} {
		if got := chargedTag(tag); got != want {
			t.Errorf("%q: want %q, got %q", tag, want, got)
		}
	}
}
