package http1

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// reservedFields are set by the client, never by its caller.
var reservedFields = [...]string{"Host", "Content-Length", "Transfer-Encoding"}

// validate refuses what would change the structure of the request's head, and HEAD: its responses have a length and no
// body, so that the client would wait for one.
func (r *Request) validate() error {
	if r.HeaderTemplate == nil &&
		(!isToken([]byte(r.Method)) || r.Method == http.MethodHead || !validTarget(r.Target)) {
		return fmt.Errorf("the request cannot be sent to %q", r.Target)
	}
	for _, f := range r.Fields {
		if !isToken([]byte(f.Name)) || !validFieldValue(f.Value) {
			return fmt.Errorf("the header %q cannot be sent", f.Name)
		}
		for _, name := range reservedFields {
			if strings.EqualFold(f.Name, name) {
				return fmt.Errorf("the header %q is not the caller's to say", f.Name)
			}
		}
	}
	return nil
}

// appendHead appends the head of a request with a body of length bytes.
func (r *Request) appendHead(to []byte, host string, length int) []byte {
	to = r.appendTemplate(to, host)
	to = append(to, "Content-Length: "...)
	to = strconv.AppendInt(to, int64(length), 10)
	return append(to, "\r\n\r\n"...)
}

// appendTemplate appends the head up to Content-Length: what a HeaderTemplate holds.
func (r *Request) appendTemplate(to []byte, host string) []byte {
	if r.HeaderTemplate != nil {
		return r.appendFields(append(to, r.HeaderTemplate.text.Reveal()...))
	}
	to = append(to, r.Method...)
	to = append(to, ' ')
	to = append(to, r.Target...)
	to = append(to, " HTTP/1.1\r\nHost: "...)
	to = append(to, host...)
	return r.appendFields(append(to, "\r\n"...))
}

func (r *Request) appendFields(to []byte) []byte {
	for _, f := range r.Fields {
		to = append(to, f.Name...)
		to = append(to, ": "...)
		to = append(to, f.Value...)
		to = append(to, "\r\n"...)
	}
	return to
}

// tokenBytes are the bytes of a token (RFC 9110, 5.6.2): methods and field names.
var tokenBytes = func() (set [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		set[c] = true
	}
	return set
}()

func isToken(name []byte) bool {
	for _, c := range name {
		if !tokenBytes[c] {
			return false
		}
	}
	return len(name) > 0
}

// noControls reports whether a text has no control characters except tabs.
func noControls(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func validFieldValue(text string) bool { return noControls([]byte(text)) }

// validTarget reports whether a text is a path, with a query or not, that cannot end the request line early.
func validTarget(text string) bool {
	return strings.HasPrefix(text, "/") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r > math.MaxInt8 })
}
