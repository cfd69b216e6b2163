package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A parsedAnswer is a response as a client has read it.
type parsedAnswer struct {
	status int
	fields [numFields]string
	length int64
	body   []byte
	rest   int  // bytes after the response
	keep   bool // another request may follow
}

// readWithClient reads a response with a Client.
func readWithClient(c *Client, wire, cuts, reads []byte, buffer int) (parsedAnswer, error) {
	conn := &fakeConn{wire: wire, cuts: cuts}
	cc := newFakeClientConn(conn, buffer)
	response, err := c.exchange(context.Background(), cc, getRoot())
	if err != nil {
		return parsedAnswer{}, err
	}
	body, err := drain(response.Body, reads)
	kept := response.Body.keepAlive && response.Body.framing != framingClose
	_ = response.Body.Close()
	next := c.idle.get()
	if err != nil {
		if next != nil || !conn.closed.Load() {
			return parsedAnswer{}, errors.New("a connection is reused after " + err.Error())
		}
		return parsedAnswer{}, err
	}
	unread := cc.end - cc.start
	if (next != nil) != (kept && unread == 0) || conn.closed.Load() == (next != nil) {
		return parsedAnswer{}, errors.New("a connection is reused with unread bytes, or is not reused without")
	}
	return parsedAnswer{
		response.Status,
		[numFields]string{response.ContentType, response.ContentEncoding, response.RetryAfter, response.RetryAfterMs, response.Date},
		response.Length, body, unread + len(conn.wire), kept,
	}, nil
}

// readWithNetHTTP reads a response with net/http's reader, and skips interim responses as net/http's Transport does.
func readWithNetHTTP(wire []byte) (parsedAnswer, error) {
	source := bytes.NewReader(wire)
	buffered := bufio.NewReader(source)
	for {
		response, err := http.ReadResponse(buffered, &http.Request{Method: http.MethodGet})
		if err != nil {
			return parsedAnswer{}, err
		}
		if s := response.StatusCode; 100 <= s && s < 200 && s != 101 {
			continue
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return parsedAnswer{}, err
		}
		get := response.Header.Get
		return parsedAnswer{
			response.StatusCode,
			[numFields]string{get("Content-Type"), get("Content-Encoding"), get("Retry-After"), get("Retry-After-Ms"), get("Date")},
			response.ContentLength, body, buffered.Buffered() + source.Len(), !response.Close,
		}, nil
	}
}

// A difference is something that one client accepts and the other refuses: a part of the refusal's error, and a check
// that the response has what the error says.
type difference struct {
	name, err string
	in        func(answer []byte) bool
}

// stricter lists what a Client refuses and net/http accepts. Every other refusal is a bug.
var stricter = []difference{
	{"a line that ends with LF alone", "bare LF", has(`(^|[^\r])\n`)},
	{"both a length and chunks", "both a length and chunks", has(`(?is)content-length:.*chunked|chunked.*content-length:`)},
	{"a repeated length", "two lengths", has(`(?is)content-length:.*content-length:`)},
	{"a length among the trailers", "two lengths", has(`(?is)chunked.*\n0+(;[^\n]*)?\r\n(.*\n)?content-length:`)},
	{"chunks in HTTP/1.0", "chunks in HTTP/1.0", has(`(?is)HTTP/1\.0.*chunked`)},
	{"a coding in HTTP/1.0, or among the trailers", "transfer encoding other than", has(`(?is)(HTTP/1\.0.*|\n0+(;[^\n]*)?\r\n.*)transfer-encoding:`)},
	{"a folded line, a name with spaces, a line without a name", "has no name", has(`\n([ \t:]|[^\r\n:]* [^\r\n:]*:)`)},
	{"a length on a folded line", "that is no number", has(`(?i)\ncontent-length:[^\n]*\n[ \t]`)},
	{"a coding on a folded line", "transfer encoding other than", has(`(?i)\ntransfer-encoding:[^\n]*\n[ \t]`)},
	{"more spaces in the first line", "does not begin with", has(`(^|\n)HTTP/\d\.\d  `)},
	{"another version", "does not begin with", has(`(^|\n)HTTP/([^1]\.\d|1\.[^01]) `)},
	{"control characters in the first line", "does not begin with", has(`(^|\n)HTTP/1\.[01] [^\n]*[\x00-\x08\x0b-\x1f\x7f][^\n]`)},
	{"a status below 100", "does not begin with", has(`(^|\n)HTTP/1\.[01] (0|\+|-0)`)},
	{"spaces behind a chunk's size", "without a size", has(`(?i)\n[0-9a-f]+([ \t]+(;|\r\n)|\r+\r\n)`)},
	{"control characters in a chunk's extension", "without a size", has(`(?i)\n[0-9a-f]+;[^\n]*[\x00-\x08\x0b\x0c\x0d-\x1f\x7f][^\n]`)},
	{"a size of many digits", "too many bytes", has(`(?i)\n[0-9a-f]{16}`)},
	{"a chunk's extension of more than we take", "more than 256 bytes", has(`(?i)\n[0-9a-f]+[ \t]*;[^\n]{200,}`)},
	{"a head or trailers of more than we take", "a line of more than", longer(8000)},
	{"another protocol", "switches to", has(`HTTP/1\.[01] 101`)},
	{"an interim answer with a length", "interim answer with a body", has(`(?is)HTTP/1\.[01] 1\d\d.*content-length:[ \t]*0*[1-9]`)},
	{"an interim answer in chunks", "interim answer with a body", has(`(?is)HTTP/1\.[01] 1\d\d.*chunked`)},
	{"a long row of interim answers", "more than 8 interim", has(`(?s)(HTTP/1\.[01] 1\d\d.*){8}`)},
}

// laxer lists what net/http refuses and a Client accepts: nothing that concerns the end of a response.
var laxer = []difference{
	{"many long extensions of small chunks", "too much non-data", longer(8000)},
	{"trailers of more than a page", "suspiciously long trailer", longer(4000)},
	{"trailers announced that may be none", "bad trailer key", has(`(?i)\ntrailer:`)},
}

func has(pattern string) func([]byte) bool { return regexp.MustCompile(pattern).Match }

func longer(than int) func([]byte) bool {
	return func(answer []byte) bool { return len(answer) > than }
}

func explained(by []difference, wire []byte, err error) bool {
	for _, d := range by {
		if strings.Contains(err.Error(), d.err) && d.in(wire) {
			return true
		}
	}
	return false
}

// compare describes how the two read a response differently, if the difference is not listed. It returns "" for none.
func compare(c *Client, wire, cuts, reads []byte, buffer int) string {
	ours, refused := readWithClient(c, bytes.Clone(wire), cuts, reads, buffer)
	theirs, err := readWithNetHTTP(wire)
	switch {
	case refused != nil && !errors.Is(refused, ErrMalformed) && !errors.Is(refused, io.ErrUnexpectedEOF):
		return "neither a truncated response nor a malformed one: " + refused.Error()
	case refused != nil && err == nil && !explained(stricter, wire, refused):
		return "refused for a reason that is not listed: " + refused.Error()
	case refused != nil:
		return ""
	case err != nil && explained(laxer, wire, err):
		return ""
	case err != nil:
		return "accepted, where net/http says " + err.Error()
	case ours.keep && !theirs.keep:
		return "kept alive, where net/http closes"
	case ours.status != theirs.status, ours.fields != theirs.fields, ours.length != theirs.length:
		return "another head"
	case !bytes.Equal(ours.body, theirs.body):
		return "another body"
	case ours.rest != theirs.rest:
		return "another end"
	}
	return ""
}

func FuzzClientReadsResponsesLikeNetHTTP(f *testing.F) {
	c := newClient(f, "http://origin.test")
	for _, answer := range responseSeeds {
		f.Add([]byte(answer), []byte{}, []byte{0}, uint16(4095))
		f.Add([]byte(answer), []byte{0}, []byte{3}, uint16(0))
		f.Add([]byte(answer), []byte{6, 2}, []byte{255, 0}, uint16(20))
	}
	f.Fuzz(func(t *testing.T, wire, cuts, reads []byte, buffer uint16) {
		if why := compare(c, wire, cuts, reads, 1+int(buffer)%initialBuffer); why != "" {
			ours, refused := readWithClient(c, bytes.Clone(wire), cuts, reads, 1+int(buffer)%initialBuffer)
			theirs, err := readWithNetHTTP(wire)
			t.Fatalf("%s\n%q\nours   %+v %v\ntheirs %+v %v", why, wire, ours, refused, theirs, err)
		}
	})
}

// The parts of heads and chunks, valid and malformed.
var (
	firstLines = []string{
		"HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 200 OK", "HTTP/1.1 204 None", "HTTP/1.1 304 Same", "HTTP/1.1 100 Go on", "HTTP/1.1 103 x",
		"HTTP/1.1 101 Switch", "HTTP/1.1 500 \xff", "HTTP/1.2 200 OK", "HTTP/2.0 200 OK", "HTTP/1.1  200 OK", "HTTP/1.1 099 x", "HTTP/1.1 999 x", "HTTP/1.1\t200 OK", " HTTP/1.1 200 OK", "",
	}
	names = []string{
		"Content-Length", "content-length", "Transfer-Encoding", "TRANSFER-encoding", "Connection", "Keep-Alive", "Content-Type", "Content-Encoding", "Retry-After", "Retry-After-Ms", "Date",
		"Trailer", "X", "X-Content-Length-And-More", "Content-Length ", " Content-Length", "Content_Length", "Content-Lengt\u0130", "", "\x00",
	}
	colons = []string{":", ": ", ": ", ": ", ":\t", ":  ", " :", " : ", "", ":\r\n ", "::"}
	values = []string{
		"5", "5", "0", "11", "05", "+5", "-5", "5 ", "5\t", "5, 5", "0x5", "5\x00", "99999999999999999999", "9223372036854775807", "9223372036854775808", "", " ", "5;", "5\r",
		"chunked", "chunked", "Chunked", "CHUNKED ", "gzip, chunked", "chunked, chunked", "identity", "chunked;q=1", "\vchunked", "chun\u212aed",
		"close", "keep-alive", "Close, x", "x , close", "closed", "timeout=5", "timeout=0", "text/plain", "\x80", "a\x7f",
	}
	ends  = append(slices.Repeat([]string{"\r\n"}, 60), "\n", "\r", "\r\r\n", "\r\n\r\n", "\n\r\n", "\r\n ", "")
	sizes = []string{
		"5", "5", "5", "0", "0", "00", "05", "A", "a", "5;x", "5;x=\"y\"", "5;\x01", "5 ", "5 ;x", " 5", "5\t", "0 ", "0;x", "+5", "-5", "0x5", "", "g", "5g", "5\x00", "5\r",
		"0000000000000005", "00000000000000005", "fffffffffffffff", "ffffffffffffffff", "ffffffffffffffffb", "7fffffffffffffff", "8000000000000000", "80000000000000000",
	}
	datas = []string{"hello", "hello", "hello", "hell", "hello!", "", "0123456789", "\r\n", "5\r\nhello\r\n", "0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"}
)

// drawOddResponse draws a response of parts that are each valid or malformed.
func drawOddResponse(t *rapid.T) []byte {
	of := func(from []string) string { return rapid.SampledFrom(from).Draw(t, "piece") }
	few := func(most int) int { return rapid.IntRange(0, most).Draw(t, "how many") }
	var w strings.Builder
	for range 1 + few(2) {
		w.WriteString(of(firstLines) + of(ends))
		for range few(3) {
			w.WriteString(of(names) + of(colons) + of(values) + of(ends))
		}
		if few(1) == 0 {
			w.WriteString("Transfer-Encoding: chunked\r\n")
		}
		w.WriteString(of(ends))
		for range few(4) {
			w.WriteString(of(sizes) + of(ends) + of(datas) + of(ends))
		}
		for range few(1) {
			w.WriteString("0" + of(ends) + of(names) + of(colons) + of(values) + of(ends))
		}
	}
	return []byte(w.String() + of(ends) + of(datas))
}

func TestClientReadsOddResponsesLikeNetHTTP(t *testing.T) {
	c := newClient(t, "http://origin.test")
	rapid.Check(t, func(t *rapid.T) {
		wire := drawOddResponse(t)
		cuts, reads, buffer := drawDelivery(t)
		if why := compare(c, wire, cuts, reads, buffer); why != "" {
			t.Fatalf("%s\n%q", why, wire)
		}
	})
}

// Every listed difference is shown by one of the seeds, so that the list has no needless exceptions.
func TestEveryListedDifferenceIsShownByASeed(t *testing.T) {
	c := newClient(t, "http://origin.test")
	shown := map[string]bool{}
	for _, answer := range responseSeeds {
		_, refused := readWithClient(c, []byte(answer), nil, nil, initialBuffer)
		_, err := readWithNetHTTP([]byte(answer))
		by, why := stricter, refused
		if err != nil {
			by, why = laxer, err
		}
		if (refused == nil) == (err == nil) {
			continue
		}
		for _, d := range by {
			if strings.Contains(why.Error(), d.err) && d.in([]byte(answer)) {
				shown[d.name] = true
			}
		}
	}
	for _, d := range append(append([]difference{}, stricter...), laxer...) {
		if !shown[d.name] {
			t.Errorf("no seed shows: %s", d.name)
		}
	}
}
