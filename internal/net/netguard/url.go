package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// A URL is a base URL that a customer has set. Only Parse makes one, and only a Guard may dial it: a test lists every
// file that reads its text.
type URL struct{ text string }

// String returns the URL with its scheme and host in lower case and without a slash at its end.
func (u URL) String() string { return u.text }

// IsZero reports whether no URL is set.
func (u URL) IsZero() bool { return u.text == "" }

// MarshalText implements encoding.TextMarshaler, for listings.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.text), nil }

// maxLength bounds a URL, in bytes.
const maxLength = 2048

// Parse validates a base URL that a customer sets. It refuses what the text alone shows to be wrong, such as an address
// that the guard would not dial. A name is resolved, and its addresses are checked, when it is dialled. Errors are for
// customers.
func (g *Guard) Parse(text string) (URL, error) {
	if len(text) > maxLength {
		return URL{}, fmt.Errorf("must have at most %d bytes", maxLength)
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
	case !validPort(u):
		return URL{}, errors.New("must have a port from 1 to 65535")
	}
	if err := g.checkHost(u.Hostname()); err != nil {
		return URL{}, err
	}
	end := len(u.Scheme) + len("://") + len(u.Host)
	return URL{text: strings.ToLower(text[:end]) + strings.TrimRight(text[end:], "/")}, nil
}

// validPort reports whether a URL has a valid port or none. An empty port, as in "host:", is invalid.
func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

// checkHost checks an address as if it were dialled, and a name by its form alone. A name whose last label is a number
// is refused: some resolvers take it for an address (2130706433, 0x7f.1, 127.1), and no top-level domain is one.
func (g *Guard) checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if r := g.blockedBy(addr); r != nil {
			return fmt.Errorf("%w: %s", r.blocked(host, addr), r.name)
		}
		return nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, label := range labels {
		if len(label) < 1 || len(label) > 63 || strings.Trim(label, hostChars) != "" {
			return errors.New("must name a host by letters, digits, hyphens and dots")
		}
	}
	last := labels[len(labels)-1]
	if len(host) > 253 || numeric(last) {
		return errors.New("must name a host, or an address as four numbers with dots or in brackets")
	}
	if strings.EqualFold(last, "localhost") { // the one name whose address is known without a resolver
		return g.checkHost("127.0.0.1")
	}
	return nil
}

const hostChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// numeric reports whether a label is a number: decimal, octal or hexadecimal.
func numeric(label string) bool {
	lower := strings.ToLower(label)
	return strings.Trim(lower, "0123456789") == "" ||
		strings.HasPrefix(lower, "0x") && strings.Trim(lower[2:], "0123456789abcdef") == ""
}
