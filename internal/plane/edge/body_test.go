package edge

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
)

func bounded(buffered int64) *Bounds {
	b := NewBounds()
	b.Buffered.Set(buffered)
	return b
}

func post(body io.Reader, length int64) *http.Request {
	return &http.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body), ContentLength: length}
}

func TestABodyIsReadWholeWhateverItsLengthAndPieces(t *testing.T) {
	b := bounded(64 << 20)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(0, 100), rapid.SampledFrom([]int{4095, 4096, 4097, 8192, 65_536, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20})).Draw(t, "size")
		text := bytes.Repeat([]byte(rapid.StringMatching(`[a-z]{1,7}`).Draw(t, "text")), size+1)[:size]
		var from io.Reader = bytes.NewReader(text)
		if rapid.Bool().Draw(t, "halves") {
			from = iotest.HalfReader(from)
		}
		if rapid.Bool().Draw(t, "end with data") {
			from = iotest.DataErrReader(from)
		}
		length := int64(size)
		if rapid.Bool().Draw(t, "unknown length") {
			length = -1
		}
		body, err := b.Read(post(from, length), 4<<20)
		if err != nil || !bytes.Equal(body.Bytes, text) {
			t.Fatalf("%v: %d bytes of %d", err, len(body.Bytes), size)
		}
		if used := b.Buffered.Used(); used != int64(cap(body.Bytes)) || used > max(4<<10, 2*int64(size)+2) {
			t.Fatalf("%d bytes are held for %d, in a buffer of %d", used, size, cap(body.Bytes))
		}
		body.Release()
		if used := b.Buffered.Used(); used != 0 {
			t.Fatalf("%d bytes are held for nothing", used)
		}
	})
}

func TestABodyThatCannotBeReadIsRefusedAndHoldsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		limit  int64
		room   int64
		want   string
	}{
		"longer than it may be":           {strings.NewReader(strings.Repeat("a", 101)), -1, 100, 10_000, "body_too_large"},
		"said to be":                      {strings.NewReader("a"), 101, 100, 10_000, "body_too_large"},
		"more than there is room for":     {strings.NewReader(strings.Repeat("a", 90)), 90, 100, 4000, "rate_limited"},
		"more than there is room to grow": {strings.NewReader(strings.Repeat("a", 8000)), -1, 10_000, 8000, "rate_limited"},
		"ended early":                     {iotest.ErrReader(io.ErrUnexpectedEOF), 10, 100, 10_000, "invalid_body"},
		"broken":                          {io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(errors.New("broken"))), 10, 100, 10_000, "invalid_body"},
	} {
		b := bounded(c.room)
		_, err := b.Read(post(c.body, c.length), c.limit)
		if err == nil || fault.From(err).Code != c.want || b.Buffered.Used() != 0 {
			t.Errorf("%s: %v, and %d bytes are held", name, err, b.Buffered.Used())
		}
	}
}

// A body that is still referenced keeps its buffer, however many bodies are read meanwhile.
func TestABufferIsNotReusedWhileItIsReferenced(t *testing.T) {
	b := bounded(64 << 20)
	first, err := b.Read(post(strings.NewReader(strings.Repeat("a", 5000)), 5000), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	first.Retain()
	kept := first.Bytes
	first.Release()
	for range 100 {
		other, err := b.Read(post(strings.NewReader(strings.Repeat("b", 5000)), 5000), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		other.Release()
	}
	if !bytes.Equal(kept, bytes.Repeat([]byte("a"), 5000)) {
		t.Error("it was written over")
	}
	first.Release()
	if b.Buffered.Used() != 0 {
		t.Error("something is held")
	}
}
