package edge

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"sovereign/internal/fault"
	"sovereign/internal/limit"
)

// Read reads a whole JSON body of at most limit bytes, and holds what is read against the budget of all bodies until
// release is called.
func (b *Bounds) Read(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	counted := &metered{from: http.MaxBytesReader(w, r.Body, limit), budget: b.Buffered}
	release = func() { b.Buffered.Give(counted.held) }
	if body, err = counted.all(r, limit); err != nil {
		release()
		return nil, nil, err
	}
	return body, release, nil
}

// A metered body holds what is read of it against a budget.
type metered struct {
	from   io.Reader
	budget *limit.Budget
	held   int64
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if !m.budget.Take(int64(n)) {
		return 0, fault.RateLimited.New("too many bytes in flight").In(time.Second)
	}
	m.held += int64(n)
	return n, err
}

func (m *metered) all(r *http.Request, limit int64) ([]byte, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, fault.UnsupportedMedia.New("a body with Content-Encoding %q is not accepted", encoding)
	}
	var body bytes.Buffer
	if length := r.ContentLength; length > 0 && length <= min(limit, trusted) {
		body.Grow(int(length) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(m); err != nil {
		return nil, unread(err, limit)
	}
	if kind := r.Header.Get("Content-Type"); kind != "" && body.Len() > 0 && kind != "application/json" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
			return nil, fault.UnsupportedMedia.New("the body must be application/json")
		}
	}
	return body.Bytes(), nil
}

// trusted is how long a body may claim to be and get its memory at once; a longer one must first arrive.
const trusted = 1 << 20

// unread says why a body could not be read.
func unread(err error, limit int64) error {
	switch {
	case errors.As(err, new(*fault.Fault)):
		return err
	case errors.As(err, new(*http.MaxBytesError)):
		return fault.BodyTooLarge.New("the body is over the limit of %d bytes", limit)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fault.InvalidBody.New("the body ended early")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Timeout.Because(err, "the body did not arrive in time")
	default:
		return fault.InvalidBody.Because(err, "the body could not be read")
	}
}
