package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"sovereign/internal/net/life"
)

// A request is one on its way, and the context that its handler has.
type handlerRequest struct {
	life.Life
	base context.Context //nolint:containedctx // what it stands on
	url  url.URL
	body body
	in   http.Request

	key, kept any // what its handler keeps there
}

// Value implements context.Context.
func (r *handlerRequest) Value(key any) any {
	if r.key != nil && r.key == key {
		return r.kept
	}
	return r.base.Value(key)
}

// Keep keeps one value in the context, and spares who calls it a request of its own. It is the handler's, before anybody else has the request.
func (r *handlerRequest) Keep(key, value any) { r.key, r.kept = key, value }

// errLeft says that a caller has gone.
var errLeft = errors.New("the caller left")

// serve has one request answered. It is false when the connection is of no use any more.
func (v *serverConn) serve(target *url.URL) (again bool) {
	e := &v.envelope
	r := &handlerRequest{base: v.base, url: *target, body: body{visit: v, left: e.length}}
	v.request = r
	v.reply.begin()
	v.reply.last = e.last
	r.in = *(&http.Request{
		Method: http.MethodPost, URL: &r.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: e.header,
		Body: &r.body, ContentLength: e.length, Host: e.host, RequestURI: target.Path, RemoteAddr: v.remote, Close: e.last,
	}).WithContext(r)
	if e.length == 0 {
		r.in.Body = http.NoBody
		v.startBackgroundRead()
	}
	whole := v.handle(&r.in)
	r.body.end()
	v.abortBackgroundRead()
	stays := r.Cause() == nil
	r.End(context.Canceled)
	again = whole && v.reply.finish() == nil && !v.reply.last
	v.reply.release()
	return again && stays && r.body.discard()
}

// handle calls the handler. It is false when that has panicked: then the answer breaks off.
func (v *serverConn) handle(in *http.Request) (whole bool) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler && v.server.Log != nil { //nolint:errorlint // what net/http compares, and how
			v.server.Log.Error("panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	v.server.Handler.ServeHTTP(&v.reply, in)
	return true
}

// watch begins, after a while, to watch for a caller who leaves. The request was read, and nothing has come after it. A timer that was
// set for a request before is left as it is: to set it and stop it with every request costs more than to let it ring.
func (v *serverConn) startBackgroundRead() {
	if v.start < v.end {
		return // a caller who is there already with the next
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.watched = v.request
	v.turn++
	if v.set {
		return
	}
	v.set, v.seen = true, v.turn
	if v.timer == nil {
		v.timer = time.AfterFunc(backgroundReadDelay, v.backgroundRead)
	} else {
		v.timer.Reset(backgroundReadDelay)
	}
}

// look waits for what a caller has no reason to send, or for its end, when the request that runs did so when the timer was last set.
func (v *serverConn) backgroundRead() {
	v.mutex.Lock()
	r := v.watched
	if r != nil && v.turn != v.seen {
		v.seen = v.turn
		v.timer.Reset(backgroundReadDelay)
		v.mutex.Unlock()
		return
	}
	if v.set = false; r == nil || v.looking != nil {
		v.mutex.Unlock()
		return
	}
	done := make(chan struct{})
	v.looking = done
	_ = v.conn.SetReadDeadline(time.Time{}) // before unwatch can set another
	v.mutex.Unlock()
	var one [1]byte
	n, err := v.read(one[:])
	v.mutex.Lock()
	v.early = append(v.early, one[:n]...)
	left := v.looking == done && n == 0 && err != nil // else it was called off
	v.mutex.Unlock()
	if left {
		r.End(errLeft)
	}
	close(done)
}

// unwatch ends the watch, and takes what it has read.
func (v *serverConn) abortBackgroundRead() {
	v.mutex.Lock()
	done := v.looking
	v.watched, v.looking = nil, nil
	if done != nil {
		_ = v.conn.SetReadDeadline(unknown) // long ago
	}
	v.mutex.Unlock()
	if done == nil {
		return
	}
	<-done
	v.waiting = unknown
	v.start, v.end = 0, copy(v.buffer, v.early)
	v.early = v.early[:0]
}

// A body is a request's.
type body struct {
	visit *serverConn
	left  int64
	timed bool // it has a deadline
	// awaits is how many bytes wake who waits for it; 0 as usual.
	awaits int

	mutex sync.Mutex
	over  bool // its handler has returned: what comes now is another's
}

// Read implements io.Reader. The end comes with the last bytes, and with it begins the watch.
func (b *body) Read(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.over {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.read(p)
	if errors.Is(err, io.EOF) && n > 0 {
		b.visit.startBackgroundRead()
	}
	return n, err
}

func (b *body) read(p []byte) (n int, err error) {
	v := b.visit
	if b.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), b.left)]
	if v.start < v.end {
		n = copy(p, v.buffer[v.start:v.end])
		v.start += n
	} else if n, err = b.receive(p); n == 0 {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	if b.left -= int64(n); b.left == 0 {
		b.await(1)
		return n, io.EOF
	}
	return n, nil
}

// receive reads what comes next. Of a long body that is mostly there already, and nothing need be set for who would wait for it.
func (b *body) receive(p []byte) (int, error) {
	v := b.visit
	if v.socket != nil && len(p) >= longBody && !b.timed {
		if n, err := v.socket.TryRead(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	if !b.timed {
		b.timed, v.waiting = true, unknown
		_ = v.conn.SetReadDeadline(time.Now().Add(v.server.BodyTimeout))
	}
	b.await(len(p))
	return v.read(p)
}

const (
	longBody    = 32 << 10 // what is waited for as a whole
	mostAwaited = 1 << 20  // as far as the kernel is asked to hold it
)

// await has the next read wait for so many bytes, where that is much.
func (b *body) await(bytes int) {
	if bytes = min(bytes, mostAwaited); bytes < longBody {
		bytes = 1
	}
	if b.visit.socket != nil && bytes != max(b.awaits, 1) {
		b.awaits = bytes
		b.visit.socket.SetReadLowWater(bytes)
	}
}

// end keeps a handler's goroutines from it.
func (b *body) end() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.over = true
}

// Close implements io.Closer.
func (b *body) Close() error { return nil }

// mostDiscarded is how much of a body that nobody wanted is read, so that its connection can be used again.
const maxDiscard = 256 << 10

// discard reads what is left of a body.
func (b *body) discard() bool {
	var room []byte
	for b.left > 0 && b.left <= maxDiscard {
		if room == nil {
			room = make([]byte, 4<<10)
		}
		if _, err := b.read(room); err != nil && !errors.Is(err, io.EOF) {
			return false
		}
	}
	return b.left == 0
}

// linger lets a caller who is still sending read its answer: to close at once would take that away from it.
func (v *serverConn) linger() {
	if half, ok := v.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	_ = v.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, v.conn, v.request.body.left-int64(v.end-v.start))
}
