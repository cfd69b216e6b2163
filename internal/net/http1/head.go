package http1

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrMalformed says that an answer is none, or one that readers could take in two ways.
var ErrMalformed = errors.New("the answer is malformed")

// A head is what the head of an answer says.
type responseHead struct {
	status  int
	minor   int // of HTTP/1
	length  int64
	chunked bool
	keep    bool
	// patience is how long the peer says that it keeps the connection; 0 when it does not say.
	patience time.Duration
	fields   [numFields]string
	said     [numFields]bool
	before   *[numFields]string // what the answer before said; nil when there is none
}

// The fields whose text is of use.
const (
	contentType = iota
	contentEncoding
	retryAfter
	retryAfterMs
	date
	numFields
)

// known are the fields that are read, by their names in lower case.
var known = map[string]func(*responseHead, []byte) error{
	"content-length":    (*responseHead).readLength,
	"transfer-encoding": (*responseHead).readEncoding,
	"connection":        (*responseHead).readConnection,
	"keep-alive":        (*responseHead).readPatience,
	"content-type":      keeps(contentType),
	"content-encoding":  keeps(contentEncoding),
	"retry-after":       keeps(retryAfter),
	"retry-after-ms":    keeps(retryAfterMs),
	"date":              keeps(date),
}

// longestKnown is the length of the longest name in known.
const longestKnown = len("transfer-encoding")

// keeps keeps the first of a field's values. What the answer before said too is not copied again.
func keeps(kind int) func(*responseHead, []byte) error {
	return func(h *responseHead, value []byte) error {
		if h.said[kind] {
			return nil
		}
		h.said[kind] = true
		if h.before != nil && h.before[kind] == string(value) {
			h.fields[kind] = h.before[kind]
		} else {
			h.fields[kind] = string(value)
		}
		return nil
	}
}

// maxInterim bounds how many interim answers may come before the answer.
const maxInterim = 8

// head reads the head of an answer, past interim ones.
func (l *clientConn) readHead(h *responseHead, most int) error {
	for range maxInterim + 1 {
		err := l.oneHead(h, most)
		switch {
		case err != nil:
			return err
		case h.status == http.StatusSwitchingProtocols:
			return fmt.Errorf("%w: it switches to another protocol", ErrMalformed)
		case h.status >= http.StatusOK:
			l.said = h.fields
			return h.settle()
		case h.length > 0 || h.chunked:
			return fmt.Errorf("%w: an interim answer with a body", ErrMalformed)
		}
	}
	return fmt.Errorf("%w: more than %d interim answers", ErrMalformed, maxInterim)
}

func (l *clientConn) oneHead(h *responseHead, most int) error {
	line, err := l.line(most)
	if err != nil {
		return err
	}
	*h = responseHead{length: -1, keep: true, before: &l.said}
	if err := h.readStatus(line); err != nil {
		return err
	}
	for left := most - len(line) - 2; ; {
		line, err := l.line(left)
		switch {
		case err != nil:
			return err
		case len(line) == 0:
			return nil
		}
		left -= len(line) + 2
		if err := h.readField(line); err != nil {
			return err
		}
	}
}

var errStatus = fmt.Errorf("%w: it does not begin with HTTP/1.1 and a status", ErrMalformed)

// readStatus reads the first line: HTTP/1.1 200 OK.
func (h *responseHead) readStatus(line []byte) error {
	const version = "HTTP/1."
	if len(line) < len(version)+5 || string(line[:len(version)]) != version {
		return errStatus
	}
	minor, status, rest := line[len(version)], line[len(version)+2:len(version)+5], line[len(version)+5:]
	if minor != '0' && minor != '1' || line[len(version)+1] != ' ' || len(rest) > 0 && rest[0] != ' ' || !plain(rest) {
		return errStatus
	}
	for _, c := range status {
		if c < '0' || c > '9' {
			return errStatus
		}
		h.status = 10*h.status + int(c-'0')
	}
	if h.status < http.StatusContinue {
		return errStatus
	}
	h.minor = int(minor - '0')
	return nil
}

// readField reads one line: Name: value.
func (h *responseHead) readField(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || !token(line[:colon]) {
		return fmt.Errorf("%w: a line of its head has no name", ErrMalformed)
	}
	if !plain(line[colon+1:]) {
		return fmt.Errorf("%w: a line of its head holds control characters", ErrMalformed)
	}
	if colon > longestKnown {
		return nil
	}
	var room [longestKnown]byte
	name := room[:colon]
	for i, c := range line[:colon] {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		name[i] = c
	}
	if read := known[string(name)]; read != nil {
		return read(h, bytes.Trim(line[colon+1:], " \t"))
	}
	return nil
}

func (h *responseHead) readLength(value []byte) error {
	if h.length >= 0 {
		return fmt.Errorf("%w: two lengths", ErrMalformed)
	}
	n, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil {
		return fmt.Errorf("%w: a length that is no number", ErrMalformed)
	}
	h.length = int64(n)
	return nil
}

func (h *responseHead) readEncoding(value []byte) error {
	if h.chunked || !says(value, "chunked") {
		return fmt.Errorf("%w: a transfer encoding other than chunked", ErrMalformed)
	}
	h.chunked = true
	return nil
}

func (h *responseHead) readConnection(value []byte) error {
	for option := range bytes.SplitSeq(value, []byte(",")) {
		if says(bytes.Trim(option, " \t"), "close") {
			h.keep = false
		}
	}
	return nil
}

// says compares with a word in lower case. Letters are ASCII's: elsewhere there is another K.
func says(text []byte, word string) bool {
	if len(text) != len(word) {
		return false
	}
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// readPatience reads how long a connection is kept: Keep-Alive: timeout=5. A second of it is for the way.
func (h *responseHead) readPatience(value []byte) error {
	for option := range strings.SplitSeq(string(value), ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(option), "timeout="); ok {
			seconds, err := strconv.ParseUint(text, 10, 16)
			switch {
			case err != nil:
			case seconds <= 1:
				h.keep = false
			default:
				h.patience = time.Duration(seconds-1) * time.Second
			}
		}
	}
	return nil
}

// settle decides where the body ends.
func (h *responseHead) settle() error {
	switch {
	case h.chunked && h.length >= 0:
		return fmt.Errorf("%w: both a length and chunks", ErrMalformed)
	case h.chunked && h.minor == 0:
		return fmt.Errorf("%w: chunks in HTTP/1.0", ErrMalformed)
	case h.status == http.StatusNoContent, h.status == http.StatusNotModified:
		h.length, h.chunked = 0, false
	}
	if h.minor == 0 {
		h.keep = false
	}
	return nil
}

// framing is how the body's end is told.
func (h *responseHead) framing() framing {
	switch {
	case h.chunked:
		return framingChunked
	case h.length >= 0:
		return framingLength
	default:
		return framingClose
	}
}

func (h *responseHead) response(body *Body) Response {
	f := &h.fields
	return Response{
		Status: h.status, ContentType: f[contentType], ContentEncoding: f[contentEncoding],
		RetryAfter: f[retryAfter], RetryAfterMs: f[retryAfterMs], Date: f[date], Length: h.length, Body: body,
	}
}

// reserved are the fields that are the client's to say.
var reserved = [...]string{"Host", "Content-Length", "Transfer-Encoding"}

// check refuses what would break out of a request's head, and HEAD, whose answers have no body whatever they say.
func (r *Request) check() error {
	if r.HeaderTemplate == nil && (!token([]byte(r.Method)) || r.Method == http.MethodHead || r.Target == "" || r.Target[0] != '/' || !targetIs(r.Target)) {
		return fmt.Errorf("the request cannot be sent to %q", r.Target)
	}
	for _, f := range r.Fields {
		if !token([]byte(f.Name)) || !valueIs(f.Value) {
			return fmt.Errorf("the header %q cannot be sent", f.Name)
		}
		for _, name := range reserved {
			if strings.EqualFold(f.Name, name) {
				return fmt.Errorf("the header %q is not the caller's to say", f.Name)
			}
		}
	}
	return nil
}

// tokens are the bytes of names.
var tokens = func() (set [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		set[c] = true
	}
	return set
}()

func token(name []byte) bool {
	for _, c := range name {
		if !tokens[c] {
			return false
		}
	}
	return len(name) > 0
}

// plain has no control characters but tabs.
func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func valueIs(text string) bool { return plain([]byte(text)) }

// targetIs has nothing that ends a target.
func targetIs(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r > math.MaxInt8 })
}
