package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// A URL is where a customer wants requests sent. Only Parse makes one, and only a Guard may dial it: a test names every
// place that reads its text.
type URL struct{ text string }

// String is the URL with its host in small letters and without a slash at its end.
func (u URL) String() string { return u.text }

// IsZero reports whether there is none.
func (u URL) IsZero() bool { return u.text == "" }

// MarshalText implements encoding.TextMarshaler, for listings.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.text), nil }

// longest is the most bytes that a URL may have.
const longest = 2048

// Parse reads the base URL that a customer may set. It refuses what can be told from the text, addresses that the guard
// would not dial among it; what a name leads to is judged when it is dialled. Its errors are for customers.
func (g *Guard) Parse(text string) (URL, error) {
	if len(text) > longest {
		return URL{}, fmt.Errorf("must have at most %d bytes", longest)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return URL{}, errors.New("must have no spaces, control characters or characters beyond ASCII")
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return URL{}, errors.New("must be a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return URL{}, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return URL{}, errors.New("must name a host")
	case u.User != nil:
		return URL{}, errors.New("must have no user or password")
	case strings.ContainsAny(text, "?#"):
		return URL{}, errors.New("must have no query or fragment")
	case !portable(u):
		return URL{}, errors.New("must have a port from 1 to 65535")
	}
	if err := g.host(u.Hostname()); err != nil {
		return URL{}, err
	}
	end := len(u.Scheme) + len("://") + len(u.Host)
	return URL{text: strings.ToLower(text[:end]) + strings.TrimRight(text[end:], "/")}, nil
}

// portable reports whether a URL names a port that there is, or none. An empty one, as in host:, is neither.
func portable(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

// host judges a host by its text: an address as if it were dialled, a name by its form alone. A name that ends in a
// number is an address to some resolvers (2130706433, 0x7f.1, 127.1), and a name to none.
func (g *Guard) host(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if r := g.judge(addr); r != nil {
			return fmt.Errorf("%w: %s", r.blocked(host, addr), r.name)
		}
		return nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, label := range labels {
		if len(label) < 1 || len(label) > 63 || strings.Trim(label, letters) != "" {
			return errors.New("must name a host by letters, digits, hyphens and dots")
		}
	}
	last := labels[len(labels)-1]
	if len(host) > 253 || numeric(last) {
		return errors.New("must name a host, or an address as four numbers with dots or in brackets")
	}
	if strings.EqualFold(last, "localhost") { // the one name whose address is known without asking
		return g.host("127.0.0.1")
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// numeric reports whether a label is a number: decimal, octal or hexadecimal.
func numeric(label string) bool {
	lower := strings.ToLower(label)
	return strings.Trim(lower, "0123456789") == "" || strings.HasPrefix(lower, "0x") && strings.Trim(lower[2:], "0123456789abcdef") == ""
}
