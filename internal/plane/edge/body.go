package edge

import (
	"errors"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
)

// A Body is a request's body, read whole and counted against the budget of all bodies. It is reference counted: Bytes
// are valid until the last user has called Release. Then the buffer serves another request.
type Body struct {
	Bytes []byte

	buffer *[]byte
	budget *limit.Budget
	held   int64
	users  atomic.Int32
}

// Retain adds a reference, which Release gives up again.
func (b *Body) Retain() { b.users.Add(1) }

// Release gives up one reference: the one that Read returned, or one of Retain. The last one returns the buffer and its
// bytes to the budget.
func (b *Body) Release() {
	if b.users.Add(-1) > 0 {
		return
	}
	b.budget.Give(b.held)
	putBuffer(b.buffer)
	b.Bytes, b.buffer = nil, nil
}

// Read reads a whole JSON body of at most limit bytes. The caller of Read must call Release.
func (b *Bounds) Read(r *http.Request, limit int64) (*Body, error) {
	if encoding := FirstValue(r.Header, "Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, fault.UnsupportedMedia.New("a body with Content-Encoding %q is not accepted", encoding)
	}
	body := &Body{budget: b.Buffered}
	body.users.Store(1)
	err := body.fill(r, limit)
	if err == nil {
		err = isJSON(FirstValue(r.Header, "Content-Type"), body.Bytes)
	}
	if err != nil {
		body.Release()
		return nil, err
	}
	return body, nil
}

// FirstValue returns the first value of a header. name must be in canonical form, which saves canonicalising it for
// every request.
func FirstValue(header http.Header, name string) string {
	if values := header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func isJSON(kind string, body []byte) error {
	if kind == "" || len(body) == 0 || kind == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return fault.UnsupportedMedia.New("the body must be JSON, with the header Content-Type: application/json")
	}
	return nil
}

// fill reads the body to its end.
func (b *Body) fill(r *http.Request, limit int64) error {
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	b.buffer = getBuffer(int(min(max(r.ContentLength, 0), maxPreallocated)) + 1)
	all := (*b.buffer)[:0]
	for {
		if len(all) == cap(all) {
			larger := getBuffer(2 * cap(all))
			all = append((*larger)[:0], all...)
			putBuffer(b.buffer)
			b.buffer = larger
		}
		n, err := r.Body.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		switch {
		case int64(len(all)) > limit:
			return tooLarge(limit)
		case !b.budget.Take(int64(n)):
			return fault.RateLimited.New("too many bytes in flight").In(time.Second)
		}
		b.held += int64(n)
		if errors.Is(err, io.EOF) {
			b.Bytes = all
			return nil
		}
		if err != nil {
			return readFault(err)
		}
	}
}

// maxPreallocated bounds the buffer that is allocated because of a Content-Length alone. A longer body gets its memory
// as it arrives.
const maxPreallocated = 1 << 20

func tooLarge(limit int64) error {
	return fault.BodyTooLarge.New("the body is over the limit of %d bytes", limit)
}

// readFault returns the refusal for a body that could not be read.
func readFault(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.InvalidBody.New("the body ended early")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Timeout.Because(err, "the body did not arrive in time")
	default:
		return fault.InvalidBody.Because(err, "the body could not be read")
	}
}

// Buffers for bodies are pooled by size class: 4 KiB, 8 KiB and so on, up to 2 MiB. Allocating 200 KiB for every
// request, and collecting it, costs as much as sending it.
const (
	minBufferBits = 12
	maxBufferBits = 21
)

var buffers [maxBufferBits - minBufferBits + 1]sync.Pool

// getBuffer returns a buffer of at least size bytes, from a pool where one fits.
func getBuffer(size int) *[]byte {
	class := max(bits.Len(uint(size-1)), minBufferBits) - minBufferBits
	if class >= len(buffers) {
		buffer := make([]byte, size)
		return &buffer
	}
	if buffer, ok := buffers[class].Get().(*[]byte); ok {
		return buffer
	}
	buffer := make([]byte, 1<<(class+minBufferBits))
	return &buffer
}

// putBuffer returns a buffer of a size class to its pool.
func putBuffer(buffer *[]byte) {
	if buffer == nil {
		return
	}
	if class := bits.Len(uint(cap(*buffer)-1)) - minBufferBits; class >= 0 && class < len(buffers) && cap(*buffer) == 1<<(class+minBufferBits) {
		buffers[class].Put(buffer)
	}
}
