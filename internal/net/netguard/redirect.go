package netguard

import (
	"errors"
	"fmt"
	"net/http"
)

// maxRedirects is how many redirects a client follows.
const maxRedirects = 5

// ErrRedirect means that a redirect is not followed.
var ErrRedirect = errors.New("the redirect is not followed")

// publicHeaders are the headers that may go to another host. Any other may hold a secret.
var publicHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Cache-Control": true, "Content-Encoding": true,
	"Content-Language": true, "Content-Length": true, "Content-Type": true, "User-Agent": true, "Traceparent": true,
}

// checkRedirect implements http.Client's CheckRedirect. The address is checked when it is dialled. A request with a
// secret header does not go to another host at all: without the secret it would be a different request.
func checkRedirect(next *http.Request, past []*http.Request) error {
	first, last := past[0], past[len(past)-1]
	switch {
	case len(past) > maxRedirects:
		return fmt.Errorf("%w: there were %d before it", ErrRedirect, maxRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return fmt.Errorf("%w: it leads to another protocol than HTTP", ErrRedirect)
	case next.URL.Scheme == "http" && last.URL.Scheme == "https":
		return fmt.Errorf("%w: it leads from https to http", ErrRedirect)
	case next.URL.User != nil:
		return fmt.Errorf("%w: it holds a password", ErrRedirect)
	case next.URL.Host != first.URL.Host && hasSecret(first.Header): // net/http would drop some headers and keep others
		return fmt.Errorf("%w: it would take the request's headers to another host", ErrRedirect)
	}
	next.Header.Del("Referer") // the first URL may be a secret
	return nil
}

// hasSecret reports whether a header may hold a secret.
func hasSecret(h http.Header) bool {
	for name := range h {
		if !publicHeaders[name] {
			return true
		}
	}
	return false
}
