package billing

import (
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/secret"
)

var (
	hookKey = secret.New("whsec_test_secret")
	when    = time.Unix(1_800_000_000, 0)
)

// signed is the header of a body that was signed with a key.
func signed(key secret.Text, body string, at time.Time) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return "t=" + stamp + ",v1=" + hex.EncodeToString(sign(key, stamp, []byte(body)))
}

func TestASignatureFitsItsBodyTimeAndKeyAlone(t *testing.T) {
	const body = `{"id":"evt_1"}`
	good := signed(hookKey, body, when)
	_, sum, _ := strings.Cut(good, ",v1=")
	forged := strings.Repeat("00", 32)
	for name, of := range map[string]struct {
		header, body string
		at           time.Time
		fits         bool
	}{
		"as sent":                      {good, body, when, true},
		"late, within the tolerance":   {good, body, when.Add(tolerance), true},
		"early, within the tolerance":  {good, body, when.Add(-tolerance), true},
		"too late":                     {good, body, when.Add(tolerance + time.Second), false},
		"from the future":              {good, body, when.Add(-tolerance - time.Second), false},
		"another body":                 {good, body + " ", when, false},
		"another time":                 {strings.Replace(good, "t=18", "t=17", 1), body, when, false},
		"an old secret beside":         {good + ",v1=" + forged, body, when, true},
		"a new secret beside":          {strings.Replace(good, ",v1=", ",v1="+forged+",v1=", 1), body, when, true},
		"spaces":                       {strings.Replace(good, ",", ", ", 1), body, when, true},
		"a scheme that is not v1":      {"t=1800000000,v0=" + sum, body, when, false},
		"no time":                      {"v1=" + sum, body, when, false},
		"two times":                    {good + ",t=1800000000", body, when, false},
		"a time that is no number":     {"t=x,v1=" + sum, body, when, false},
		"a huge time":                  {"t=9223372036854775807,v1=" + sum, body, when, false},
		"no signature":                 {"t=1800000000", body, when, false},
		"a signature cut short":        {good[:len(good)-2], body, when, false},
		"nothing":                      {"", body, when, false},
		"signed with an empty key":     {signed(secret.New(""), body, when), body, when, false},
		"signed with another":          {signed(secret.New("whsec_other"), body, when), body, when, false},
		"too many others before it":    {"t=1800000000" + strings.Repeat(",v1="+forged, maxSignatures) + ",v1=" + sum, body, when, false},
		"upper case of the same bytes": {strings.Replace(good, sum, strings.ToUpper(sum), 1), body, when, true},
	} {
		if err := verify(hookKey, of.header, []byte(of.body), of.at); (err == nil) != of.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingFitsAnEmptyKey(t *testing.T) {
	for _, key := range []secret.Text{{}, secret.New("")} {
		if verify(key, signed(key, "{}", when), []byte("{}"), when) == nil {
			t.Error("an empty key verifies what was signed with it")
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(signed(hookKey, "{}", when), []byte("{}"))
	f.Add("t=,v1=", []byte(""))
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		if verify(hookKey, header, body, when) == nil && !strings.Contains(strings.ToLower(header), hex.EncodeToString(sign(hookKey, stampOf(header), body))) {
			t.Fatalf("%q fits %q", header, body)
		}
	})
}

func stampOf(header string) string {
	for part := range strings.SplitSeq(header, ",") {
		if stamp, ok := strings.CutPrefix(strings.TrimSpace(part), "t="); ok {
			return stamp
		}
	}
	return ""
}
