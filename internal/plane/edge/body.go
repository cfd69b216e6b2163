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
	"sovereign/internal/net/pace"
)

// A Body is a request's body, read whole. Its memory is a part of its workspace's share of all bodies' memory. It is
// reference counted: Bytes are valid until the last user has called Release. Then the buffer serves another request.
type Body struct {
	Bytes []byte

	buffer *[]byte
	share  *limit.Share
	held   int64 // bytes of the share: the size of the buffer
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
	putBuffer(b.buffer)
	b.share.Give(b.held)
	b.Bytes, b.buffer = nil, nil
}

// Read reads a whole JSON body of at most limit bytes. The caller of Read must call Release.
func (b *Bounds) Read(r *http.Request, limit int64) (*Body, error) {
	if encoding := FirstValue(r.Header, "Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, fault.UnsupportedMedia.New("a body with Content-Encoding %q is not accepted", encoding)
	}
	call := callOf(r.Context())
	body := &Body{share: b.Buffered.Of(call.caller.Workspace)}
	body.users.Store(1)
	err := body.fill(r, limit, &upload{body: r.Body, call: call, meter: pace.Meter{Limit: b.Pace}})
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
func (b *Body) fill(r *http.Request, limit int64, from *upload) error {
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	all, err := b.grow(nil, int(min(max(r.ContentLength, 0), maxPreallocated))+1)
	if err != nil {
		return err
	}
	for {
		if len(all) == cap(all) {
			size := min(2*cap(all), int(limit)+1)
			if all, err = b.grow(all, max(size, int(r.ContentLength)+1, cap(all)+1)); err != nil {
				return err
			}
		}
		n, err := from.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		switch {
		case int64(len(all)) > limit:
			return tooLarge(limit)
		case errors.Is(err, io.EOF):
			from.end()
			from.call.bodyRead, b.Bytes = true, all
			return nil
		case err != nil:
			from.call.closes = true // where the next request begins is not known
			return readFault(err)
		}
	}
}

// grow moves what was read into a buffer of at least size bytes. The memory is taken from the share before it is
// allocated, and the old buffer's is given back after the copy: the share never holds less than the process does.
func (b *Body) grow(all []byte, size int) ([]byte, error) {
	size = bufferSize(size)
	if !b.share.Take(int64(size)) {
		return all, fault.RateLimited.New("too many bytes in flight").In(time.Second)
	}
	larger := getBuffer(size)
	all = append((*larger)[:0], all...)
	putBuffer(b.buffer)
	b.share.Give(b.held)
	b.buffer, b.held = larger, int64(size)
	return all, nil
}

// maxPreallocated bounds the buffer that is allocated because of a Content-Length alone. A longer body gets the rest of
// its memory when so much has arrived.
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

// bufferSize returns the size of the buffer that getBuffer returns for a size.
func bufferSize(size int) int {
	if size > 1<<maxBufferBits {
		return size
	}
	return 1 << max(bits.Len(uint(size-1)), minBufferBits)
}

// getBuffer returns a buffer of at least size bytes, from a pool where one fits.
func getBuffer(size int) *[]byte {
	size = bufferSize(size)
	if class := bits.Len(uint(size-1)) - minBufferBits; class < len(buffers) {
		if buffer, ok := buffers[class].Get().(*[]byte); ok {
			return buffer
		}
	}
	buffer := make([]byte, size)
	return &buffer
}

// putBuffer returns a buffer of a size class to its pool.
func putBuffer(buffer *[]byte) {
	if buffer == nil {
		return
	}
	if class := bits.Len(uint(cap(*buffer)-1)) - minBufferBits; class >= 0 && class < len(buffers) &&
		cap(*buffer) == 1<<(class+minBufferBits) {
		buffers[class].Put(buffer)
	}
}
