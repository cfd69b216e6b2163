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

// A responseWriter is the http.ResponseWriter of a serverConn. What is written is buffered, and sent when the buffer is
// full, on a flush, and at the end. A short response without a flush gets a Content-Length, like those of net/http.
type responseWriter struct {
	conn        *serverConn
	header      http.Header
	status      int
	close       bool    // the connection ends with this response
	length      int64   // the handler's Content-Length; -1 without one
	written     int64   // bytes of the body that Write has accepted
	sniff       bool    // the handler has set no Content-Type
	deadlineSet bool    // the handler has set a write deadline
	headDone    bool    // the head is complete, with the framing of the body
	chunked     bool    // Transfer-Encoding: chunked
	buffer      *[]byte // what is to be sent: the head, as far as it goes, and the body
	held        []byte  // the beginning of the body, held back until its framing is known
	err         error   // sticky
}

// responseBuffers are the buffers for responses. An idle connection has none.
var responseBuffers = sync.Pool{New: func() any { return new([]byte) }}

const (
	maxHeld           = 2 << 10 // bytes that are held back; a body that ends within them gets a Content-Length
	maxResponseBuffer = 64 << 10
)

// begin resets the writer for a new request.
func (w *responseWriter) begin() {
	*w = responseWriter{conn: w.conn, header: w.header, length: -1, held: w.held[:0]}
	if w.header == nil {
		w.header = http.Header{}
	}
	clear(w.header)
}

// release gives the buffers back after a response.
func (w *responseWriter) release() {
	if w.buffer != nil && cap(*w.buffer) <= maxResponseBuffer {
		*w.buffer = (*w.buffer)[:0]
		responseBuffers.Put(w.buffer)
	}
	if w.deadlineSet {
		_ = w.conn.conn.SetWriteDeadline(time.Time{})
	}
	if w.buffer = nil; cap(w.held) > maxHeld {
		w.held = nil
	}
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. It does not send interim (1xx) responses: callers need not wait for
// those.
func (w *responseWriter) WriteHeader(status int) {
	switch {
	case w.status != 0:
		return
	case status < http.StatusContinue || status > 999:
		panic(fmt.Sprintf("no status: %d", status)) // as net/http does
	case status < http.StatusOK:
		return
	}
	w.status = status
	w.buffer, _ = responseBuffers.Get().(*[]byte)
	out := (*w.buffer)[:0]
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(status)...)
	out = append(out, "\r\n"...)
	_, typed := w.header["Content-Type"]
	w.sniff = !typed && w.header.Get("Content-Encoding") == ""
	out = w.appendFields(out)
	if _, dated := w.header["Date"]; !dated {
		out = append(out, "Date: "...)
		out = append(out, httpDate()...)
		out = append(out, "\r\n"...)
	}
	*w.buffer = out
}

// appendFields appends the handler's header fields. Those that concern the framing and the connection are noted
// instead: completeHead writes them.
func (w *responseWriter) appendFields(out []byte) []byte {
	for name, values := range w.header {
		if len(values) == 0 || !isToken([]byte(name)) {
			continue
		}
		switch name {
		case "Content-Length":
			if n, err := strconv.ParseInt(values[0], 10, 64); err == nil && n >= 0 && w.hasBody() {
				w.length = n
			}
			continue
		case "Connection":
			w.close = w.close || strings.EqualFold(values[0], "close")
			continue
		case "Transfer-Encoding":
			continue
		}
		for _, value := range values {
			out = append(out, name...)
			out = append(out, ": "...)
			out = appendValue(out, value)
			out = append(out, "\r\n"...)
		}
	}
	return out
}

// appendValue appends a field value with CR and LF replaced by spaces, so that it cannot add lines to the head.
func appendValue(to []byte, value string) []byte {
	if strings.IndexByte(value, '\r') < 0 && strings.IndexByte(value, '\n') < 0 {
		return append(to, value...)
	}
	return append(to, strings.NewReplacer("\r", " ", "\n", " ").Replace(value)...)
}

// hasBody reports whether a response with this status may have a body.
func (w *responseWriter) hasBody() bool {
	return w.status >= http.StatusOK && w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case w.err != nil:
		return 0, w.err
	case !w.hasBody():
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		w.written += int64(len(p)) // now it differs from length for good, so that finish closes the connection
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if !w.headDone && w.length < 0 && (len(w.held) > 0 || len(p) <= maxHeld) {
		if w.held = append(w.held, p...); len(w.held) <= maxHeld {
			return len(p), nil
		}
		w.unhold(false)
		return len(p), w.flush(false)
	}
	w.completeHead(p, false)
	w.appendBody(p)
	return len(p), w.flush(false)
}

// Send implements fastpath.DirectWriter: it writes p and everything that is buffered, at once.
func (w *responseWriter) Send(p []byte) error {
	if w.appendChunk(p) {
		return w.flush(true)
	}
	if _, err := w.Write(p); err != nil {
		return err
	}
	return w.FlushError()
}

// appendChunk is the fast path of Write for a chunked response that has begun. It returns false if this is not one.
func (w *responseWriter) appendChunk(p []byte) bool {
	if !w.chunked || w.err != nil || len(p) == 0 {
		return false
	}
	w.written += int64(len(p))
	w.appendBody(p)
	return true
}

// End implements fastpath.DirectWriter: it writes p, everything that is buffered and the end of the response, at once.
// The caller does not wait for what the handler does after that.
func (w *responseWriter) End(p []byte) error {
	if !w.appendChunk(p) {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	err := w.finish()
	w.chunked, w.length = false, w.written // so that a later Write returns http.ErrContentLength
	return err
}

// TrySend implements fastpath.TrySender. It returns a function that sends without blocking, for a chunked response that
// has begun, or nil. The function returns false when a part of p stays buffered: the next Send sends it.
func (w *responseWriter) TrySend() func(now time.Time, p []byte) bool {
	conn, ok := w.conn.conn.(fastpath.TryWriter)
	if !ok || !w.chunked {
		return nil
	}
	return func(now time.Time, p []byte) bool {
		if w.err != nil {
			return false
		}
		w.written += int64(len(p))
		w.appendBody(p)
		n, err := conn.TryWrite(now, *w.buffer)
		w.err = err
		rest := copy(*w.buffer, (*w.buffer)[n:])
		*w.buffer = (*w.buffer)[:rest]
		return err == nil && rest == 0
	}
}

// unhold completes the head and appends what was held back. ended means that this is all of the body.
func (w *responseWriter) unhold(ended bool) {
	w.completeHead(w.held, ended)
	w.appendBody(w.held)
	w.held = w.held[:0]
}

// completeHead appends the framing of the body and the end of the head. first is the beginning of the body; ended means
// that it is all of it, so that its length is known.
func (w *responseWriter) completeHead(first []byte, ended bool) {
	if w.headDone {
		return
	}
	w.headDone = true
	w.close = w.close || w.conn.request.body.remaining > maxDiscard || w.conn.server.closing.Load()
	out := *w.buffer
	if w.sniff && w.hasBody() && len(first) > 0 {
		out = append(out, "Content-Type: "...)
		out = append(out, http.DetectContentType(first)...)
		out = append(out, "\r\n"...)
	}
	switch {
	case !w.hasBody():
	case w.length < 0 && !ended:
		w.chunked = true
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	default:
		if w.length < 0 {
			w.length = int64(len(first))
		}
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, w.length, 10)
		out = append(out, "\r\n"...)
	}
	if w.close {
		out = append(out, "Connection: close\r\n"...)
	}
	out = append(out, "\r\n"...)
	*w.buffer = out
}

// appendBody buffers a piece of the body, as a chunk if the response is chunked.
func (w *responseWriter) appendBody(p []byte) {
	out := *w.buffer
	if w.chunked && len(p) > 0 {
		out = strconv.AppendUint(out, uint64(len(p)), 16)
		out = append(out, "\r\n"...)
		out = append(out, p...)
		out = append(out, "\r\n"...)
	} else {
		out = append(out, p...)
	}
	*w.buffer = out
}

// flush sends the buffer, if force is set or much has gathered.
func (w *responseWriter) flush(force bool) error {
	if w.err == nil && len(*w.buffer) > 0 && (force || len(*w.buffer) > maxResponseBuffer/4) {
		_, w.err = w.conn.conn.Write(*w.buffer)
		*w.buffer = (*w.buffer)[:0]
	}
	return w.err
}

// FlushError sends everything that was written. http.ResponseController looks for this method.
func (w *responseWriter) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.unhold(false)
	return w.flush(true)
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// SetWriteDeadline sets a deadline for this response. http.ResponseController looks for this method.
func (w *responseWriter) SetWriteDeadline(t time.Time) error {
	w.deadlineSet = true
	return w.conn.conn.SetWriteDeadline(t)
}

// finish sends the end of the response. A response that is shorter than its Content-Length ends the connection.
func (w *responseWriter) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.unhold(true)
	if w.chunked {
		*w.buffer = append(*w.buffer, "0\r\n\r\n"...)
	}
	if w.length >= 0 && w.length != w.written {
		w.close = true
		_ = w.flush(true)
		return http.ErrContentLength
	}
	return w.flush(true)
}

// httpDate returns the time as the Date header has it. It is formatted once a second.
func httpDate() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &formattedDate{second: now.Unix(), text: now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}

type formattedDate struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[formattedDate]
