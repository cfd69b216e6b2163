package http1

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/net/fastpath"
)

// A reply is the http.ResponseWriter of one request. What is written is gathered, and sent when it is much, when it is flushed, or at
// the end: then with its length, where nobody has told it.
type reply struct {
	visit  *visit
	header http.Header
	status int
	last   bool  // the connection ends with it
	length int64 // that the handler has told; -1 when it has not
	sent   int64 // bytes of the body that were taken
	sniffs bool  // the handler has not told what it sends
	timed  bool  // the handler has set a deadline
	framed bool  // the head is complete: it says how the body ends
	chunks bool
	buffer *[]byte // the head as far as it goes, and what is to be sent
	body   []byte  // what is held back until it is known how the body ends
	err    error
}

// replies are buffers for what is to be sent. A connection that waits has none.
var replies = sync.Pool{New: func() any { return new([]byte) }}

const (
	heldBack  = 2 << 10 // bytes of a body that may still turn out to be all of it
	mostReply = 64 << 10
)

func (r *reply) begin() {
	*r = reply{visit: r.visit, header: r.header, length: -1, body: r.body[:0]}
	if r.header == nil {
		r.header = http.Header{}
	}
	clear(r.header)
}

func (r *reply) release() {
	if r.buffer != nil && cap(*r.buffer) <= mostReply {
		*r.buffer = (*r.buffer)[:0]
		replies.Put(r.buffer)
	}
	if r.timed {
		_ = r.visit.conn.SetWriteDeadline(time.Time{}) // the next has its own
	}
	if r.buffer = nil; cap(r.body) > heldBack {
		r.body = nil
	}
}

// Header implements http.ResponseWriter.
func (r *reply) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter. Interim answers, which nobody has to wait for, are not sent.
func (r *reply) WriteHeader(status int) {
	switch {
	case r.status != 0:
		return
	case status < http.StatusContinue || status > 999:
		panic(fmt.Sprintf("no status: %d", status)) // as net/http does
	case status < http.StatusOK:
		return
	}
	r.status = status
	r.buffer, _ = replies.Get().(*[]byte)
	out := (*r.buffer)[:0]
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(status)...)
	out = append(out, "\r\n"...)
	_, typed := r.header["Content-Type"]
	r.sniffs = !typed && r.header.Get("Content-Encoding") == ""
	for name, values := range r.header {
		if len(values) == 0 || !named(name) {
			continue
		}
		switch name {
		case "Content-Length":
			if n, err := strconv.ParseInt(values[0], 10, 64); err == nil && n >= 0 && r.hasBody() {
				r.length = n
			}
			continue
		case "Connection":
			r.last = r.last || strings.EqualFold(values[0], "close")
			continue
		case "Transfer-Encoding":
			continue // it is not the handler's to say
		}
		for _, value := range values {
			out = append(out, name...)
			out = append(out, ": "...)
			out = appendValue(out, value)
			out = append(out, "\r\n"...)
		}
	}
	if _, dated := r.header["Date"]; !dated {
		out = append(out, "Date: "...)
		out = append(out, now()...)
		out = append(out, "\r\n"...)
	}
	*r.buffer = out
}

// named says that a name is one.
func named(name string) bool {
	for i := range len(name) {
		if !tokens[name[i]] {
			return false
		}
	}
	return name != ""
}

// appendValue keeps a value from breaking out of its line.
func appendValue(to []byte, value string) []byte {
	if strings.IndexByte(value, '\r') < 0 && strings.IndexByte(value, '\n') < 0 {
		return append(to, value...)
	}
	return append(to, strings.NewReplacer("\r", " ", "\n", " ").Replace(value)...)
}

func (r *reply) hasBody() bool {
	return r.status >= http.StatusOK && r.status != http.StatusNoContent && r.status != http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (r *reply) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case r.err != nil:
		return 0, r.err
	case !r.hasBody():
		return 0, http.ErrBodyNotAllowed
	case r.length >= 0 && r.sent+int64(len(p)) > r.length:
		r.sent += int64(len(p)) // never what was told, so that the connection ends
		return 0, http.ErrContentLength
	}
	r.sent += int64(len(p))
	if !r.framed && r.length < 0 && (len(r.body) > 0 || len(p) <= heldBack) {
		if r.body = append(r.body, p...); len(r.body) <= heldBack {
			return len(p), nil
		}
		r.unhold(false)
		return len(p), r.send(false)
	}
	r.frame(p, false)
	r.put(p)
	return len(p), r.send(false)
}

// Send writes p and all that waits before it, at once.
func (r *reply) Send(p []byte) error {
	if r.goesOn(p) {
		return r.send(true)
	}
	if _, err := r.Write(p); err != nil {
		return err
	}
	return r.FlushError()
}

// goesOn gathers a piece of a stream that has begun, if it is one.
func (r *reply) goesOn(p []byte) bool {
	if !r.chunks || r.err != nil || len(p) == 0 {
		return false
	}
	r.sent += int64(len(p))
	r.put(p)
	return true
}

// End writes p, all that waits before it, and the end of the answer, at once: what its handler has left to do is no matter of the caller's.
func (r *reply) End(p []byte) error {
	if !r.goesOn(p) {
		if _, err := r.Write(p); err != nil {
			return err
		}
	}
	err := r.finish()
	r.chunks, r.length = false, r.sent // what is written now is more than was told
	return err
}

// TrySend is how a stream that has begun is sent to a caller who need not be waited for, or nil where that cannot be told. What it is given
// is sent as far as that goes at once; it is false when some of it is left, for the next Send.
func (r *reply) TrySend() func(now time.Time, p []byte) bool {
	conn, ok := r.visit.conn.(fastpath.TryWriter)
	if !ok || !r.chunks {
		return nil
	}
	return func(now time.Time, p []byte) bool {
		if r.err != nil {
			return false
		}
		r.sent += int64(len(p))
		r.put(p)
		n, err := conn.TryWrite(now, *r.buffer)
		r.err = err
		rest := copy(*r.buffer, (*r.buffer)[n:])
		*r.buffer = (*r.buffer)[:rest]
		return err == nil && rest == 0
	}
}

// unhold frames what was held back.
func (r *reply) unhold(ended bool) {
	r.frame(r.body, ended)
	r.put(r.body)
	r.body = r.body[:0]
}

// frame completes the head: it says how the body ends, which begins with first. At the end of everything that is its length.
func (r *reply) frame(first []byte, ended bool) {
	if r.framed {
		return
	}
	r.framed = true
	r.last = r.last || r.visit.request.body.left > mostDiscarded || r.visit.server.closing.Load()
	out := *r.buffer
	if r.sniffs && r.hasBody() && len(first) > 0 {
		out = append(out, "Content-Type: "...)
		out = append(out, http.DetectContentType(first)...)
		out = append(out, "\r\n"...)
	}
	switch {
	case !r.hasBody():
	case r.length < 0 && !ended:
		r.chunks = true
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	default:
		if r.length < 0 {
			r.length = int64(len(first))
		}
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, r.length, 10)
		out = append(out, "\r\n"...)
	}
	if r.last {
		out = append(out, "Connection: close\r\n"...)
	}
	out = append(out, "\r\n"...)
	*r.buffer = out
}

// put gathers a piece of the body.
func (r *reply) put(p []byte) {
	out := *r.buffer
	if r.chunks && len(p) > 0 {
		out = strconv.AppendUint(out, uint64(len(p)), 16)
		out = append(out, "\r\n"...)
		out = append(out, p...)
		out = append(out, "\r\n"...)
	} else {
		out = append(out, p...)
	}
	*r.buffer = out
}

// send writes what was gathered, if it is much or if it must.
func (r *reply) send(must bool) error {
	if r.err == nil && len(*r.buffer) > 0 && (must || len(*r.buffer) > mostReply/4) {
		_, r.err = r.visit.conn.Write(*r.buffer)
		*r.buffer = (*r.buffer)[:0]
	}
	return r.err
}

// FlushError sends what was written. http.ResponseController looks for it by this name.
func (r *reply) FlushError() error {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.unhold(false)
	return r.send(true)
}

// Flush implements http.Flusher.
func (r *reply) Flush() { _ = r.FlushError() }

// SetWriteDeadline is for http.ResponseController. It holds for this answer.
func (r *reply) SetWriteDeadline(t time.Time) error {
	r.timed = true
	return r.visit.conn.SetWriteDeadline(t)
}

// finish sends the end of the answer. An answer that is shorter than it has said breaks off.
func (r *reply) finish() error {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.unhold(true)
	if r.chunks {
		*r.buffer = append(*r.buffer, "0\r\n\r\n"...)
	}
	if r.length >= 0 && r.length != r.sent {
		r.last = true
		_ = r.send(true)
		return http.ErrContentLength
	}
	return r.send(true)
}

// now is the time as heads tell it, made once a second.
func now() string {
	at := time.Now()
	if d := today.Load(); d != nil && d.second == at.Unix() {
		return d.text
	}
	d := &dated{second: at.Unix(), text: at.UTC().Format(http.TimeFormat)}
	today.Store(d)
	return d.text
}

type dated struct {
	second int64
	text   string
}

var today atomic.Pointer[dated]
