package http1

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrMalformed means that what was received is not an HTTP/1 response, or is one that readers could take in two ways.
var ErrMalformed = errors.New("the answer is malformed")

// A responseHead is the status line and the fields of a response, as far as the client uses them.
type responseHead struct {
	status           int
	minor            int   // of the version HTTP/1.x
	length           int64 // Content-Length; -1 without one
	chunked          bool
	keepAlive        bool          // the server keeps the connection open
	keepAliveTimeout time.Duration // for how long, by its Keep-Alive header; 0 if it does not say
	fields           [numFields]string
	seen             [numFields]bool
	lastFields       *[numFields]string // of the last response on the connection; nil for trailers
}

// The fields whose values are kept: indexes of responseHead.fields.
const (
	fieldContentType = iota
	fieldContentEncoding
	fieldRetryAfter
	fieldRetryAfterMs
	fieldDate
	numFields
)

// fieldReaders read the fields that the client uses, by their names in lower case.
var fieldReaders = map[string]func(*responseHead, []byte) error{
	"content-length":    (*responseHead).readContentLength,
	"transfer-encoding": (*responseHead).readTransferEncoding,
	"connection":        (*responseHead).readConnection,
	"keep-alive":        (*responseHead).readKeepAlive,
	"content-type":      keepFirst(fieldContentType),
	"content-encoding":  keepFirst(fieldContentEncoding),
	"retry-after":       keepFirst(fieldRetryAfter),
	"retry-after-ms":    keepFirst(fieldRetryAfterMs),
	"date":              keepFirst(fieldDate),
}

// longestField is the length of the longest name in fieldReaders.
const longestField = len("transfer-encoding")

// keepFirst keeps the first value of a field. A value that the last response had too is shared with it instead of
// copied.
func keepFirst(field int) func(*responseHead, []byte) error {
	return func(h *responseHead, value []byte) error {
		if h.seen[field] {
			return nil
		}
		h.seen[field] = true
		if h.lastFields != nil && h.lastFields[field] == string(value) {
			h.fields[field] = h.lastFields[field]
		} else {
			h.fields[field] = string(value)
		}
		return nil
	}
}

// maxInterim bounds the interim (1xx) responses before a response.
const maxInterim = 8

// readHead reads the head of a response of at most limit bytes, and skips interim responses before it.
func (cc *clientConn) readHead(h *responseHead, limit int) error {
	for range maxInterim + 1 {
		err := cc.readOneHead(h, limit)
		switch {
		case err != nil:
			return err
		case h.status == http.StatusSwitchingProtocols:
			return fmt.Errorf("%w: it switches to another protocol", ErrMalformed)
		case h.status >= http.StatusOK:
			cc.lastFields = h.fields
			return h.checkFraming()
		case h.length > 0 || h.chunked:
			return fmt.Errorf("%w: an interim answer with a body", ErrMalformed)
		}
	}
	return fmt.Errorf("%w: more than %d interim answers", ErrMalformed, maxInterim)
}

// readOneHead reads the head of a response, interim or final.
func (cc *clientConn) readOneHead(h *responseHead, limit int) error {
	line, err := cc.readLine(limit)
	if err != nil {
		return err
	}
	*h = responseHead{length: -1, keepAlive: true, lastFields: &cc.lastFields}
	if err := h.readStatusLine(line); err != nil {
		return err
	}
	for left := limit - len(line) - len("\r\n"); ; {
		line, err := cc.readLine(left)
		switch {
		case err != nil:
			return err
		case len(line) == 0:
			return nil
		}
		left -= len(line) + len("\r\n")
		if err := h.readField(line); err != nil {
			return err
		}
	}
}

var errStatusLine = fmt.Errorf("%w: it does not begin with HTTP/1.1 and a status", ErrMalformed)

// readStatusLine reads a line such as "HTTP/1.1 200 OK".
func (h *responseHead) readStatusLine(line []byte) error {
	const version = "HTTP/1."
	if len(line) < len(version)+5 || string(line[:len(version)]) != version {
		return errStatusLine
	}
	minor, status, rest := line[len(version)], line[len(version)+2:len(version)+5], line[len(version)+5:]
	if minor != '0' && minor != '1' || line[len(version)+1] != ' ' ||
		len(rest) > 0 && rest[0] != ' ' || !noControls(rest) {
		return errStatusLine
	}
	for _, c := range status {
		if c < '0' || c > '9' {
			return errStatusLine
		}
		h.status = 10*h.status + int(c-'0')
	}
	if h.status < http.StatusContinue {
		return errStatusLine
	}
	h.minor = int(minor - '0')
	return nil
}

// readField reads a line such as "Name: value".
func (h *responseHead) readField(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || !isToken(line[:colon]) {
		return fmt.Errorf("%w: a line of its head has no name", ErrMalformed)
	}
	if !noControls(line[colon+1:]) {
		return fmt.Errorf("%w: a line of its head holds control characters", ErrMalformed)
	}
	if colon > longestField {
		return nil
	}
	var buffer [longestField]byte
	name := buffer[:colon]
	for i, c := range line[:colon] {
		name[i] = lowerASCII(c)
	}
	if read := fieldReaders[string(name)]; read != nil {
		return read(h, bytes.Trim(line[colon+1:], " \t"))
	}
	return nil
}

func (h *responseHead) readContentLength(value []byte) error {
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

func (h *responseHead) readTransferEncoding(value []byte) error {
	if h.chunked || !equalFold(value, "chunked") {
		return fmt.Errorf("%w: a transfer encoding other than chunked", ErrMalformed)
	}
	h.chunked = true
	return nil
}

func (h *responseHead) readConnection(value []byte) error {
	for option := range bytes.SplitSeq(value, []byte(",")) {
		if equalFold(bytes.Trim(option, " \t"), "close") {
			h.keepAlive = false
		}
	}
	return nil
}

// equalFold compares with a word in lower case. It folds ASCII letters only: by Unicode's rules the Kelvin sign is a k
// too.
func equalFold(text []byte, word string) bool {
	if len(text) != len(word) {
		return false
	}
	for i, c := range text {
		if lowerASCII(c) != word[i] {
			return false
		}
	}
	return true
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// readKeepAlive reads a value such as "timeout=5". A second is subtracted, for the time that a request takes to arrive.
func (h *responseHead) readKeepAlive(value []byte) error {
	for option := range strings.SplitSeq(string(value), ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(option), "timeout="); ok {
			seconds, err := strconv.ParseUint(text, 10, 16)
			switch {
			case err != nil:
			case seconds <= 1:
				h.keepAlive = false
			default:
				h.keepAliveTimeout = time.Duration(seconds-1) * time.Second
			}
		}
	}
	return nil
}

// checkFraming refuses contradictions about the end of the body, and settles the cases that the fields do not decide.
func (h *responseHead) checkFraming() error {
	switch {
	case h.chunked && h.length >= 0:
		return fmt.Errorf("%w: both a length and chunks", ErrMalformed)
	case h.chunked && h.minor == 0:
		return fmt.Errorf("%w: chunks in HTTP/1.0", ErrMalformed)
	case h.status == http.StatusNoContent, h.status == http.StatusNotModified:
		h.length, h.chunked = 0, false
	}
	if h.minor == 0 {
		h.keepAlive = false
	}
	return nil
}

// framing returns how the end of the body is marked.
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
		Status: h.status, ContentType: f[fieldContentType], ContentEncoding: f[fieldContentEncoding],
		RetryAfter: f[fieldRetryAfter], RetryAfterMs: f[fieldRetryAfterMs], Date: f[fieldDate], Length: h.length,
		Body: body,
	}
}
