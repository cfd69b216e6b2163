package http1

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// A requestChecker checks the requests of one connection, as their bytes arrive. It accepts what every recipient must
// read alike: one that reads more leniently cannot see another end of a request, and so no other requests. It refuses
// what RFC 9112 lets a recipient repair:
//
//   - a line that does not end with CR LF, a control character, a folded field, a space before a field's colon
//   - two lengths, even equal ones; a length and an encoding; an encoding other than "chunked", or in HTTP/1.0
//   - no Host, two, or one that the target contradicts
//   - a chunk size that is not hexadecimal digits alone, a long chunk extension, a trailer field that belongs in a head
//
// The zero requestChecker is at the beginning of a connection.
type requestChecker struct {
	at        checkedLine
	remaining int64  // bytes of the body, or of the chunk, before the next line
	line      []byte // what has arrived of the line
	emptyLine bool   // an empty line has come before the request
	trailers  int    // bytes of the trailer section so far
	head      checkedHead
}

// A checkedLine is which line of a request comes next.
type checkedLine int

const (
	lineRequest   checkedLine = iota // or one empty line
	lineField                        // or the end of the head
	lineChunkSize                    //
	lineChunkEnd                     // the empty line after a chunk's data
	lineTrailer                      // or the end of the body
)

// A checkedHead is what the head says about the request's end and its host.
type checkedHead struct {
	http10    bool
	authority string // of the target, if it has one
	host      string
	length    int64
	hasLength bool
	chunked   bool
}

// inHead reports whether the next line is one of a head.
func (c *requestChecker) inHead() bool { return c.at <= lineField }

func malformed(what string) error { return fmt.Errorf("%w: %s", ErrMalformed, what) }

// check checks the bytes that follow those of the last call. It returns how many of them may be read, which is all if
// there is no error, and never the end of a line that is not in order.
func (c *requestChecker) check(p []byte) (n int, err error) {
	for n < len(p) {
		if c.remaining > 0 {
			skipped := min(int64(len(p)-n), c.remaining)
			c.remaining -= skipped
			n += int(skipped)
			continue
		}
		taken, err := c.checkLine(p[n:])
		if err != nil {
			return n, err
		}
		n += taken
	}
	return n, nil
}

// checkLine checks up to the end of a line, and returns how many bytes that are.
func (c *requestChecker) checkLine(p []byte) (n int, err error) {
	end := bytes.IndexByte(p, '\n')
	part := p
	if end >= 0 {
		part = p[:end]
	}
	if len(c.line)+len(part) > c.longestLine() {
		return 0, malformed("a line is too long")
	}
	if len(part) > 0 && bytes.HasSuffix(c.line, []byte("\r")) || !noControls(bytes.TrimSuffix(part, []byte("\r"))) {
		return 0, malformed("a line has a control character")
	}
	c.line = append(c.line, part...)
	if end < 0 {
		return len(p), nil
	}
	line, ended := bytes.CutSuffix(c.line, []byte("\r"))
	if !ended {
		return 0, malformed("a line ends without CR")
	}
	if c.line = c.line[:0]; cap(c.line) > maxRequestHead {
		c.line = nil // a long line does not occupy memory for as long as its connection
	}
	return end + 1, c.endLine(line)
}

// maxTrailers bounds the trailer section: net/http's server reads one of 4 KiB at most.
const maxTrailers = 4 << 10

// longestLine returns the most bytes of the next line. The server bounds the head itself, with a status of its own.
func (c *requestChecker) longestLine() int {
	switch c.at {
	case lineChunkSize:
		return maxChunkLine
	case lineChunkEnd:
		return len("\r")
	case lineTrailer:
		return maxTrailers - c.trailers
	default:
		return math.MaxInt
	}
}

// endLine checks a whole line, and sets what comes after it.
func (c *requestChecker) endLine(line []byte) (err error) {
	switch c.at {
	case lineRequest:
		if len(line) == 0 && !c.emptyLine { // RFC 9112, 2.2
			c.emptyLine = true
			return nil
		}
		c.at, c.emptyLine, c.head = lineField, false, checkedHead{}
		return c.head.checkRequestLine(line)
	case lineField:
		if len(line) == 0 {
			return c.endHead()
		}
		return c.head.checkField(line)
	case lineChunkSize:
		c.remaining, err = parseChunkSize(line)
		if c.at = lineChunkEnd; c.remaining == 0 {
			c.at, c.trailers = lineTrailer, 0
		}
		return err
	case lineChunkEnd:
		c.at = lineChunkSize
		if len(line) > 0 {
			return malformed("a chunk is longer than it says")
		}
		return nil
	default:
		if c.trailers += len(line) + len("\r\n"); len(line) == 0 {
			c.at = lineRequest
			return nil
		}
		return checkTrailer(line)
	}
}

// endHead checks the head as a whole, and sets how the body ends.
func (c *requestChecker) endHead() error {
	h := &c.head
	switch {
	case h.chunked && h.hasLength:
		return malformed("a length and an encoding")
	case h.chunked && h.http10:
		return malformed("an encoding in HTTP/1.0")
	case h.host == "" && !h.http10:
		return malformed("no host")
	case h.authority != "" && !strings.EqualFold(h.authority, h.host):
		return malformed("the target is of another host")
	case h.chunked:
		c.at = lineChunkSize
	default:
		c.at, c.remaining = lineRequest, h.length
	}
	return nil
}

// checkRequestLine checks a method, a target and a version, with one space between them.
func (h *checkedHead) checkRequestLine(line []byte) error {
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, _ := bytes.Cut(rest, []byte(" "))
	if !isToken(method) {
		return malformed("the method is no token")
	}
	switch string(version) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		h.http10 = true
	default:
		return malformed("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	return h.checkTarget(string(method), string(target))
}

// checkTarget checks a path, a URL of http or https, or the * of OPTIONS. It refuses CONNECT, which would make a tunnel
// of the connection.
func (h *checkedHead) checkTarget(method, target string) error {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '\\' {
			return malformed("the target has a character that no URL has")
		}
	}
	if strings.HasPrefix(target, "/") && method != "CONNECT" || target == "*" && method == "OPTIONS" {
		return nil
	}
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) || method == "CONNECT" {
			continue
		}
		h.authority = target[len(scheme):]
		if end := strings.IndexAny(h.authority, "/?"); end >= 0 {
			h.authority = h.authority[:end]
		}
		if validHost(h.authority) {
			return nil
		}
	}
	return malformed("the target is no path and no URL")
}

// checkField checks a field of a head, and notes what it says about the request's end and host.
func (h *checkedHead) checkField(line []byte) (err error) {
	name, value, err := splitField(line)
	if err != nil {
		return err
	}
	switch {
	case strings.EqualFold(name, "Host"):
		if h.host != "" || !validHost(value) {
			return malformed("two hosts, or one that is none")
		}
		h.host = value
	case strings.EqualFold(name, "Content-Length"):
		length, ok := parseLength(value)
		if h.hasLength || !ok {
			return malformed("two lengths, or one that is none")
		}
		h.length, h.hasLength = length, true
	case strings.EqualFold(name, "Transfer-Encoding"):
		if h.chunked || value != "chunked" {
			return malformed(`an encoding other than "chunked"`)
		}
		h.chunked = true
	}
	return nil
}

// splitField splits a field. Its name is a token that the colon follows directly.
func splitField(line []byte) (name, value string, err error) {
	key, rest, found := bytes.Cut(line, []byte(":"))
	if !found || !isToken(key) {
		return "", "", malformed("a field without a name")
	}
	return string(key), string(bytes.Trim(rest, " \t")), nil
}

// headFields belong in a head, because they say where the request ends, where it goes, who sends it, or how its body is
// read (RFC 9110, 6.5.1).
var headFields = [...]string{
	"Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
	"Content-Type", "Cookie", "Expect", "Forwarded", "Host", "Idempotency-Key", "Keep-Alive", "Max-Forwards", "Pragma",
	"Proxy-Authorization", "Proxy-Connection", "Range", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
}

// checkTrailer checks a field of a trailer section.
func checkTrailer(line []byte) error {
	name, _, err := splitField(line)
	if err != nil {
		return err
	}
	for _, forbidden := range headFields {
		if strings.EqualFold(name, forbidden) {
			return malformed("a field in a trailer that belongs in a head")
		}
	}
	return nil
}
