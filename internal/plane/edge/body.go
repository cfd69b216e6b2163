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

// A Body is a request's, read whole and held against the budget of all bodies. It is lent: Bytes are good until everyone who has
// taken it has released it, and then serve another request.
type Body struct {
	Bytes []byte

	buffer *[]byte
	budget *limit.Budget
	held   int64
	users  atomic.Int32
}

// Retain adds a reference: the body is kept until a further Release.
func (b *Body) Retain() { b.users.Add(1) }

// Release gives the body back. Whoever reads it, and whoever took it, releases it once.
func (b *Body) Release() {
	if b.users.Add(-1) > 0 {
		return
	}
	b.budget.Give(b.held)
	giveBack(b.buffer)
	b.Bytes, b.buffer = nil, nil
}

// Read reads a whole JSON body of at most limit bytes. Whoever gets one releases it.
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

// First is a header's value. Its name is written as net/http writes it, and needs no look at each of its letters.
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
		return fault.UnsupportedMedia.New("the body must be application/json")
	}
	return nil
}

// fill reads to the end.
func (b *Body) fill(r *http.Request, limit int64) error {
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	b.buffer = borrow(int(min(max(r.ContentLength, 0), trusted)) + 1)
	all := (*b.buffer)[:0]
	for {
		if len(all) == cap(all) {
			larger := borrow(2 * cap(all))
			all = append((*larger)[:0], all...)
			giveBack(b.buffer)
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
			return unread(err)
		}
	}
}

// trusted is how long a body may claim to be and get its memory at once; a longer one must first arrive.
const trusted = 1 << 20

func tooLarge(limit int64) error {
	return fault.BodyTooLarge.New("the body is over the limit of %d bytes", limit)
}

// unread says why a body could not be read.
func unread(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.InvalidBody.New("the body ended early")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Timeout.Because(err, "the body did not arrive in time")
	default:
		return fault.InvalidBody.Because(err, "the body could not be read")
	}
}

// Buffers for bodies, by size: of 4 KiB, 8 KiB and so on. To make one of 200 KiB anew for every request, and to collect it, costs
// as much as to send it on.
const (
	leastBuffer = 12 // as a power of two
	mostBuffer  = 21
)

var buffers [mostBuffer - leastBuffer + 1]sync.Pool

// borrow is a buffer of at least size bytes.
func borrow(size int) *[]byte {
	class := max(bits.Len(uint(size-1)), leastBuffer) - leastBuffer
	if class >= len(buffers) {
		buffer := make([]byte, size)
		return &buffer
	}
	if buffer, ok := buffers[class].Get().(*[]byte); ok {
		return buffer
	}
	buffer := make([]byte, 1<<(class+leastBuffer))
	return &buffer
}

func giveBack(buffer *[]byte) {
	if buffer == nil {
		return
	}
	if class := bits.Len(uint(cap(*buffer)-1)) - leastBuffer; class >= 0 && class < len(buffers) && cap(*buffer) == 1<<(class+leastBuffer) {
		buffers[class].Put(buffer)
	}
}
