package netguard

import (
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestParseAcceptsAndRefuses(t *testing.T) {
	g := New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	for text, want := range map[string]string{
		"https://api.example.com/v1":              "",
		"https://api.example.com/v1/":             "",
		"http://a/":                               "",
		"https://api.example.com.:8443/A%20b//":   "",
		"https://xn--bcher-kva.example":           "",
		"https://8.8.8.8:65535":                   "",
		"https://[2606:4700::1]:1/v1":             "",
		"http://10.0.0.9:8000/v1":                 "",
		"http://localhost:1":                      "public",
		"http://api.LocalHost.:1":                 "public",
		"http://localhost.example.com":            "",
		"http://my_host.local":                    "",
		"":                                        "http://",
		"/v1":                                     "http://",
		"example.com/v1":                          "http://",
		"//example.com":                           "http://",
		"ftp://example.com":                       "http://",
		"file:///etc/passwd":                      "http://",
		"unix:///run/admin.sock":                  "http://",
		"http:example.com":                        "name a host",
		"http://":                                 "name a host",
		"http://:80":                              "name a host",
		"https:///v1":                             "name a host",
		"https://user@example.com":                "password",
		"https://user:pw@example.com":             "password",
		"https://@example.com":                    "password",
		"https://example.com?a=b":                 "query",
		"https://example.com/?":                   "query",
		"https://example.com/#x":                  "fragment",
		"https://example.com:":                    "port",
		"https://example.com:0":                   "port",
		"https://example.com:65536":               "port",
		"https://example.com:99999999999999":      "port",
		"https://example.com:-1":                  "URL",
		"https://example.com:http":                "URL",
		"https://exa mple.com":                    "spaces",
		"https://example.com/\r\nX: y":            "control",
		"https://example.com/\x00":                "control",
		"https://example.com/\x7f":                "control",
		"https://exämple.com":                     "ASCII",
		"https://１２７.0.0.1":                       "ASCII",
		"https://127。0。0。1":                       "ASCII",
		"https://%31%32%37.0.0.1":                 "URL",
		"https://a%C3%A4.com":                     "letters",
		"https://a..b":                            "letters",
		"https://a!b.com":                         "letters",
		"https://" + strings.Repeat("a", 64):      "letters",
		"https://" + strings.Repeat("a.", 128):    "host",
		"https://a/" + strings.Repeat("b", 2048):  "2048",
		"http://127.0.0.1":                        "127.0.0.1 is not a public address: loopback",
		"http://169.254.169.254/latest/meta-data": "169.254.169.254 is not a public address: link-local",
		"http://192.168.0.1":                      "private",
		"http://0.0.0.0":                          "this network",
		"http://[::1]:80":                         "loopback",
		"http://[::]":                             "unspecified",
		"http://[::ffff:127.0.0.1]/":              "loopback",
		"http://[64:ff9b::7f00:1]":                "loopback",
		"http://[64:ff9b::a00:1]":                 "private",
		"http://[fe80::1%25eth0]":                 "zone",
		"http://[::ffff:8.8.8.8%25eth0]":          "zone",
		"http://2130706433/":                      "four numbers",
		"http://0x7f.1/":                          "four numbers",
		"http://0x7f000001":                       "four numbers",
		"http://127.1/":                           "four numbers",
		"http://0/":                               "four numbers",
		"http://0177.0.0.1":                       "four numbers",
		"http://127.0.0.01":                       "four numbers",
		"http://127.0.0.1.":                       "four numbers",
		"http://1.2.3.0X4":                        "four numbers",
		"http://a.0x":                             "four numbers",
	} {
		u, err := g.Parse(text)
		switch {
		case want == "" && (err != nil || u.String() != strings.TrimRight(text, "/")):
			t.Errorf("%q: got %q, %v", text, u, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !u.IsZero()):
			t.Errorf("%q: want an error of %q, got %q, %v", text, want, u, err)
		}
	}
}

func TestParseReportsABlockedLiteral(t *testing.T) {
	var blocked *Blocked
	if _, err := New(nil).Parse("https://[::ffff:10.0.0.1]/v1"); !errors.As(err, &blocked) || blocked.Host != "::ffff:10.0.0.1" || blocked.Why != "private: is a private network's" {
		t.Errorf("got %+v", blocked)
	}
}

func TestParseNormalizes(t *testing.T) {
	g := New(nil)
	for text, want := range map[string]string{
		"HTTPS://Api.Example.COM:8443/V1/": "https://api.example.com:8443/V1", "http://A": "http://a", "http://A//": "http://a",
		"HTTP://[2606:4700::AB]/": "http://[2606:4700::ab]", "https://a/B/%2F/": "https://a/B/%2F",
	} {
		if u, err := g.Parse(text); err != nil || u.String() != want {
			t.Errorf("%s: got %s, %v", text, u, err)
		}
	}
}

func TestAURLMarshalsAsText(t *testing.T) {
	u, err := New(nil).Parse("https://example.com/v1/")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(map[string]URL{"base_url": u}); string(text) != `{"base_url":"https://example.com/v1"}` {
		t.Errorf("got %s, %v", text, err)
	}
}

// Parse accepts its own result unchanged, and net/url finds the same host in it after a path was appended.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/v1/", "http://[::1]:80", "http://2130706433/", "http://0x7f.1", "http://a:1@b:2", "https://example.com:443//",
		"http://[fe80::1%25a]", "HTTP://8.8.8.8", "http://a\\@b", "http://a%40b", "http://[::ffff:127.0.0.1]:9/x?y#z",
	} {
		f.Add(seed)
	}
	g := New(nil)
	f.Fuzz(func(t *testing.T, text string) {
		u, err := g.Parse(text)
		if err != nil {
			if !u.IsZero() {
				t.Fatalf("%q: an error and %q", text, u)
			}
			return
		}
		again, err := g.Parse(u.String())
		if err != nil || again != u {
			t.Fatalf("%q became %q, then %q: %v", text, u, again, err)
		}
		joined, err := url.Parse(u.String() + "/v1/chat?x=y#z")
		if err != nil || joined.User != nil || joined.Hostname() == "" || joined.Opaque != "" || (joined.Scheme != "http" && joined.Scheme != "https") {
			t.Fatalf("%q joins to %+v: %v", text, joined, err)
		}
		if addr, err := netip.ParseAddr(joined.Hostname()); err == nil && blockedBy(addr) != nil {
			t.Fatalf("%q leads to %s", text, addr)
		}
	})
}
