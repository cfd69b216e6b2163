package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// A framedResponse is a response and its encoding.
type framedResponse struct {
	framing framing
	body    []byte
	wire    []byte
}

// drawResponse draws a response with a body of up to most bytes.
func drawResponse(t *rapid.T, label string, most int, framings ...framing) framedResponse {
	a := framedResponse{framing: rapid.SampledFrom(framings).Draw(t, label+" framing"), body: rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, label)}
	var w bytes.Buffer
	for range rapid.IntRange(0, 2).Draw(t, label+" interim answers") {
		w.WriteString("HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")
	}
	w.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
	switch a.framing {
	case framingLength:
		fmt.Fprintf(&w, "Content-Length: %d\r\n\r\n%s", len(a.body), a.body)
	case framingClose:
		fmt.Fprintf(&w, "\r\n%s", a.body)
	case framingChunked:
		w.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for rest := a.body; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, label+" chunk")
			extension := rapid.SampledFrom([]string{"", "", ";", ";a=b", ";0\t\"c\""}).Draw(t, label+" extension")
			fmt.Fprintf(&w, rapid.SampledFrom([]string{"%x%s\r\n", "%X%s\r\n", "%04x%s\r\n"}).Draw(t, label+" size"), n, extension)
			w.Write(rest[:n])
			w.WriteString("\r\n")
			rest = rest[n:]
		}
		w.WriteString(rapid.SampledFrom([]string{"0\r\n\r\n", "000;x\r\n\r\n", "0\r\nA: b\r\nExpires: 0\r\n\r\n"}).Draw(t, label+" end"))
	}
	a.wire = w.Bytes()
	return a
}

// drawDelivery draws how a response arrives and how it is read.
func drawDelivery(t *rapid.T) (cuts, reads []byte, buffer int) {
	return rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "cuts"),
		rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 1, 7, 200, 255}), 0, 5).Draw(t, "reads"),
		rapid.SampledFrom([]int{1, 2, 16, 100, initialBuffer}).Draw(t, "buffer")
}

func TestResponsesAreReadWhereverTheyAreSplit(t *testing.T) {
	c := newClient(t, "http://origin.test")
	rapid.Check(t, func(t *rapid.T) {
		cuts, reads, buffer := drawDelivery(t)
		first := drawResponse(t, "first", 700, framingLength, framingChunked)
		second := drawResponse(t, "second", 700, framingLength, framingChunked, framingClose)
		conn := &fakeConn{cuts: cuts, responses: [][]byte{first.wire, second.wire}, eofWithData: rapid.Bool().Draw(t, "abrupt")}
		cc := newFakeClientConn(conn, buffer)
		for _, a := range []framedResponse{first, second} {
			response, err := c.exchange(context.Background(), cc, getRoot())
			if err != nil {
				t.Fatal(err)
			}
			got, err := drain(response.Body, reads)
			if err != nil || !bytes.Equal(got, a.body) || response.ContentType != "text/plain" {
				t.Fatalf("%q\n%q %v", a.wire, got, err)
			}
			if (response.Length == int64(len(a.body))) != (a.framing == framingLength) && response.Length != -1 {
				t.Fatalf("%q: length %d", a.wire, response.Length)
			}
			if _, err := response.Body.Next(); !errors.Is(err, io.EOF) {
				t.Fatalf("after the end: %v", err)
			}
			_ = response.Body.Close()
			if again := c.idle.get(); (again == cc) != (a.framing != framingClose) {
				t.Fatalf("%q: reused: %v", a.wire, again == cc)
			}
		}
	})
}

func TestATruncatedResponseIsAnError(t *testing.T) {
	c := newClient(t, "http://origin.test")
	rapid.Check(t, func(t *rapid.T) {
		cuts, reads, buffer := drawDelivery(t)
		a := drawResponse(t, "answer", 40, framingLength, framingChunked)
		for n := range a.wire {
			conn := &fakeConn{wire: a.wire[:n:n], cuts: cuts}
			response, err := c.exchange(context.Background(), newFakeClientConn(conn, buffer), getRoot())
			if err == nil {
				var got []byte
				got, err = drain(response.Body, reads)
				if !bytes.HasPrefix(a.body, got) {
					t.Fatalf("%q: %q", a.wire[:n], got)
				}
				_ = response.Body.Close()
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%q: %v", a.wire[:n], err)
			}
			if !conn.closed.Load() || c.idle.get() != nil {
				t.Fatalf("%q: the connection is reused", a.wire[:n])
			}
		}
	})
}

// The rest of a body that was not read to its end would be taken for the next response.
func TestAnUnreadBodyClosesItsConnection(t *testing.T) {
	c := newClient(t, "http://origin.test")
	for name, wire := range map[string]string{
		"length": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"chunks": chunked + "5\r\nhello\r\n0\r\n\r\n",
		"end":    "HTTP/1.1 200 OK\r\n\r\nhello",
	} {
		for _, read := range []int{0, 1, 4} {
			conn := &fakeConn{wire: []byte(wire)}
			response, err := c.exchange(context.Background(), newFakeClientConn(conn, 16), getRoot())
			if err != nil {
				t.Fatal(name, err)
			}
			if _, err := io.ReadFull(response.Body, make([]byte, read)); err != nil {
				t.Fatal(name, err)
			}
			_ = response.Body.Close()
			if !conn.closed.Load() || c.idle.get() != nil {
				t.Errorf("%s: reused after %d bytes", name, read)
			}
			if _, err := response.Body.Next(); !errors.Is(err, errClosed) {
				t.Errorf("%s: after Close: %v", name, err)
			}
			if n, err := response.Body.Read(make([]byte, maxBuffer)); n != 0 || !errors.Is(err, errClosed) {
				t.Errorf("%s: after Close: %d %v", name, n, err)
			}
			if err := response.Body.Close(); err != nil {
				t.Errorf("%s: closed twice: %v", name, err)
			}
		}
	}
}

// A reader that has read Content-Length bytes need not read the io.EOF after them.
func TestABodyOfKnownLengthNeedNotBeReadToEOF(t *testing.T) {
	c := newClient(t, "http://origin.test")
	for _, wire := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"} {
		cc := newFakeClientConn(&fakeConn{wire: []byte(wire)}, 16)
		response, err := c.exchange(context.Background(), cc, getRoot())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(response.Body, make([]byte, response.Length)); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if c.idle.get() != cc {
			t.Errorf("%q: not reused", wire)
		}
	}
}

// Next returns what has arrived at once, wherever the chunks begin and end.
func TestNextReturnsAllThatHasArrived(t *testing.T) {
	c := newClient(t, "http://origin.test")
	conn := &fakeConn{wire: []byte(chunked)}
	response, err := c.exchange(context.Background(), newFakeClientConn(conn, initialBuffer), getRoot())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ arrives, want string }{
		{"3\r\none\r\n3\r\ntwo\r\n5\r\nth", "onetwoth"},
		{"ree\r", "ree"},
		{"\n4\r\nfour\r\n5\r\nf", "fourf"},
		{"ive!\r\n3", "ive!"},
		{"\r\nsix\r\n00005\r\nseven", "six"}, // a size that begins with 0 may be the last chunk's
		{"", "seven"},
		{"\r\n03\r\nsay\r\n0002\r\nso", "sayso"},
		{"\r\n3\r\nend\r\n0\r\n", "end"},
	} {
		conn.wire = append(conn.wire, step.arrives...)
		if piece, err := response.Body.Next(); string(piece) != step.want || err != nil {
			t.Errorf("%q: %q %v", step.arrives, piece, err)
		}
	}
	conn.wire = []byte("\r\n")
	if piece, err := response.Body.Next(); len(piece) > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%q %v", piece, err)
	}
}

// The buffer grows when reads fill it, and stays small for a body that trickles.
func TestTheBufferGrowsWithFullReads(t *testing.T) {
	c := newClient(t, "http://origin.test")
	for _, test := range []struct {
		cuts []byte
		size int
	}{{nil, maxBuffer}, {[]byte{99}, initialBuffer}} {
		conn := &fakeConn{wire: append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"), make([]byte, 100_000)...), cuts: test.cuts}
		cc := newFakeClientConn(conn, initialBuffer)
		response, err := c.exchange(context.Background(), cc, getRoot())
		if err != nil {
			t.Fatal(err)
		}
		if text, err := drain(response.Body, nil); len(text) != 100_000 || err != nil || len(cc.buffer) != test.size {
			t.Errorf("%d bytes over a buffer of %d: %v", len(text), len(cc.buffer), err)
		}
		_ = response.Body.Close()
	}
}

func TestParseChunkSizeReadsHexadecimalDigits(t *testing.T) {
	for c := range 256 {
		want, err := strconv.ParseUint(string([]byte{byte(c)}), 16, 8)
		if n, refused := parseChunkSize([]byte{byte(c)}); (refused == nil) != (err == nil) || n != int64(want) {
			t.Errorf("%#x: %d %v", c, n, refused)
		}
	}
}
