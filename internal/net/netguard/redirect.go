package netguard

import (
	"errors"
	"fmt"
	"net/http"
)

// mostRedirects is how many a client follows.
const mostRedirects = 5

// ErrRedirect says that an answer leads where a client does not follow.
var ErrRedirect = errors.New("the redirect is not followed")

// harmless are the headers that may go to another host than the one they were written for. Any other can be a secret.
var harmless = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Cache-Control": true, "Content-Encoding": true,
	"Content-Language": true, "Content-Length": true, "Content-Type": true, "User-Agent": true, "Traceparent": true,
}

// follow implements http.Client's CheckRedirect. It judges the way; the address is judged when it is dialled. A request
// that carries a secret does not go to another host at all: without the secret, it would be another request.
func follow(next *http.Request, past []*http.Request) error {
	first, last := past[0], past[len(past)-1]
	switch {
	case len(past) > mostRedirects:
		return fmt.Errorf("%w: there were %d before it", ErrRedirect, mostRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return fmt.Errorf("%w: it leads to another protocol than HTTP", ErrRedirect)
	case next.URL.Scheme == "http" && last.URL.Scheme == "https":
		return fmt.Errorf("%w: it leads from https to http", ErrRedirect)
	case next.URL.User != nil:
		return fmt.Errorf("%w: it holds a password", ErrRedirect)
	case next.URL.Host != first.URL.Host && secret(first.Header): // net/http would keep some of them and drop others
		return fmt.Errorf("%w: it would take the request's headers to another host", ErrRedirect)
	}
	next.Header.Del("Referer") // where a request was sent first is nobody else's business
	return nil
}

func secret(h http.Header) bool {
	for name := range h {
		if !harmless[name] {
			return true
		}
	}
	return false
}
