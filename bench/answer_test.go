package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

// cut reads a text in pieces of the given lengths, over and over.
type cut struct {
	text    string
	lengths []int
	next    int
}

func (c *cut) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := min(len(p), len(c.text), c.lengths[c.next%len(c.lengths)])
	c.next++
	copy(p, c.text[:n])
	c.text = c.text[n:]
	return n, nil
}

// framed is an answer with that body, plain or in chunks of the given lengths.
func framed(status, kind, body string, lengths []int) string {
	head := fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nX-Other: 1\r\n", status, kind)
	if len(lengths) == 0 {
		return fmt.Sprintf("%scontent-length: %d\r\n\r\n%s", head, len(body), body)
	}
	var out strings.Builder
	out.WriteString(head + "Transfer-Encoding: chunked\r\n\r\n")
	for i := 0; body != ""; i++ {
		n := min(len(body), lengths[i%len(lengths)])
		out.WriteString(chunk(body[:n]))
		body = body[n:]
	}
	return out.String() + "0\r\n\r\n"
}

func TestAnAnswerCutAnywhereReadsTheSame(t *testing.T) {
	lengths := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8)
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.IntRange(0, 5).Draw(t, "events")
		want, kind := expectation{text: "needle", events: events}, "application/json"
		body := rapid.StringMatching(`[a-z\n ]{0,60}`).Draw(t, "before") + "needle" + rapid.StringMatching(`[a-z\n ]{0,60}`).Draw(t, "after")
		if events > 0 {
			kind = "text/event-stream; charset=utf-8"
			body = strings.Repeat("data: "+strings.ReplaceAll(body, "\n", "")+"\n\n", events-1) + "data: [DONE]\n\n"
			if events == 1 {
				body = ": needle\n\n" + body
			}
		}
		chunks := rapid.OneOf(rapid.Just([]int(nil)), lengths).Draw(t, "chunks")
		text := framed("200 OK", kind, body, chunks)
		r := newReader(bufio.NewReaderSize(&cut{text: text + text, lengths: lengths.Draw(t, "reads")}, 64), want)
		for range 2 { // a connection is used again
			if err := r.read(); err != nil {
				t.Fatalf("%v in %q", err, text)
			}
			if r.size != len(body) || r.events.count != events || r.first.IsZero() {
				t.Fatalf("%d bytes and %d events, want %d and %d", r.size, r.events.count, len(body), events)
			}
		}
	})
}

func TestATextIsCountedAcrossPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"data:", "data", "da", "ta:", "d"})).Draw(t, "texts"), "")
		lengths := rapid.SliceOfN(rapid.IntRange(0, 7), 1, 8).Draw(t, "lengths")
		s := search{text: []byte("data:")}
		for i, rest := 0, text; rest != ""; i++ {
			n := min(len(rest), lengths[i%len(lengths)]+i%2) // never nothing for ever
			s.add([]byte(rest[:n]))
			rest = rest[n:]
		}
		if want := strings.Count(text, "data:"); s.count != want {
			t.Fatalf("%d, want %d", s.count, want)
		}
	})
}

func TestAWrongAnswerIsRefused(t *testing.T) {
	const events = "text/event-stream"
	good := framed("200 OK", "application/json", "needle", nil)
	for name, wrong := range map[string]struct {
		text   string
		events int
		err    error
	}{
		"another status":        {framed("500 Oops", "application/json", "needle", nil), 0, errStatus},
		"another text":          {framed("200 OK", "application/json", "hay", []int{2}), 0, errOther},
		"a stream, unasked":     {framed("200 OK", events, "data: needle\n\ndata: [DONE]\n\n", nil), 0, errOther},
		"no stream":             {good, 2, errOther},
		"a stream without end":  {framed("200 OK", events, "data: needle\n\ndata: needle\n\n", nil), 2, errEnded},
		"an event too few":      {framed("200 OK", events, "data: needle\n\ndata: [DONE]\n\n", nil), 3, errEnded},
		"an event too many":     {framed("200 OK", events, "data: needle\n\ndata: needle\n\ndata: [DONE]\n\n", nil), 2, errEnded},
		"words after the end":   {framed("200 OK", events, "data: needle\n\ndata: [DONE]\n\n: more", nil), 2, errEnded},
		"no length":             {"HTTP/1.1 200 OK\r\n\r\nneedle", 0, errWire},
		"a length that is none": {"HTTP/1.1 200 OK\r\nContent-Length: six\r\n\r\nneedle", 0, errWire},
		"lines of one byte":     {strings.ReplaceAll(good, "\r\n", "\n"), 0, errWire},
		"a chunk too long":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nneedle\r\n0\r\n\r\n", 0, errWire},
		"a chunk of no size":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nneedle\r\n0\r\n\r\n", 0, errWire},
		"broken off":            {good[:len(good)-1], 0, io.EOF},
		"broken off in a chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nneed", 0, io.EOF},
		"no end of chunks":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nneedle\r\n", 0, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(bufio.NewReader(iotest.OneByteReader(strings.NewReader(wrong.text))), expectation{text: "needle", events: wrong.events})
			if err := r.read(); !errors.Is(err, wrong.err) {
				t.Errorf("%v, want %v", err, wrong.err)
			}
		})
	}
}

func TestAPercentileIsNotExceededByItsShare(t *testing.T) {
	var ten []time.Duration
	for i := range 10 {
		ten = append(ten, time.Duration(i+1))
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.1: 1, 0.5: 5, 0.51: 6, 0.9: 9, 0.99: 10, 1: 10} {
		if got := percentile(ten, share); got != want {
			t.Errorf("%v of ten: %d, want %d", share, got, want)
		}
	}
	if got := percentile(nil, 0.5); got != 0 {
		t.Errorf("%d of nothing", got)
	}
}
