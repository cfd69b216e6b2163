package http1

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"sovereign/internal/base/panics"
	"sovereign/internal/net/life"
)

// A handlerRequest is all that one request needs, in one allocation. It is the request's context as well.
type handlerRequest struct {
	life.Life
	base context.Context //nolint:containedctx // for values
	url  url.URL
	body requestBody
	http http.Request

	keptKey, keptValue any // see Keep
}

// Value implements context.Context.
func (r *handlerRequest) Value(key any) any {
	if r.keptKey != nil && r.keptKey == key {
		return r.keptValue
	}
	return r.base.Value(key)
}

// Keep stores one value in the context, which saves context.WithValue and http.Request.WithContext. It may be called
// once, by the handler, before another goroutine has the request.
func (r *handlerRequest) Keep(key, value any) { r.keptKey, r.keptValue = key, value }

// errCallerLeft ends the context of a request whose caller has closed the connection.
var errCallerLeft = errors.New("the caller left")

// serve has a request answered by the handler. It returns false if the connection cannot be used for another.
func (sc *serverConn) serve(target *url.URL) (reusable bool) {
	h := &sc.head
	r := &handlerRequest{base: sc.base, url: *target, body: requestBody{conn: sc, remaining: h.length}}
	sc.request = r
	sc.response.begin()
	sc.response.close = h.close
	r.http = *(&http.Request{
		Method: http.MethodPost, URL: &r.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h.header,
		Body: &r.body, ContentLength: h.length, Host: h.host, RequestURI: target.Path, RemoteAddr: sc.remoteAddr,
		Close: h.close,
	}).WithContext(r)
	if h.length == 0 {
		r.http.Body = http.NoBody
		sc.startBackgroundRead()
	}
	returned := sc.callHandler(&r.http)
	r.body.end()
	sc.abortBackgroundRead()
	callerStays := r.Cause() == nil
	r.End(context.Canceled)
	reusable = returned && sc.response.finish() == nil && !sc.response.close
	sc.response.release()
	return reusable && callerStays && r.body.discard()
}

// callHandler calls the handler. It returns false if that has panicked: then the response is cut off, as with net/http.
func (sc *serverConn) callHandler(r *http.Request) (returned bool) {
	defer func() {
		//nolint:errorlint // net/http compares so too
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panics.Note(sc.server.Log, "a handler of the fast lane", p)
		}
	}()
	sc.server.Handler.ServeHTTP(&sc.response, r)
	return true
}

// backgroundReadDelay is how long a request runs before the background read starts; it may take up to twice as long.
// Most requests are over before.
const backgroundReadDelay = 100 * time.Millisecond

// startBackgroundRead arranges for a background read, which ends the request's context when the caller closes the
// connection. net/http's server does the same, and at once. The request's body must have been read.
//
// The timer of an earlier request is left running: to set and stop it with every request costs more than to let it
// fire.
func (sc *serverConn) startBackgroundRead() {
	if sc.start < sc.end {
		return // the caller has sent the next request already
	}
	sc.mutex.Lock()
	defer sc.mutex.Unlock()
	sc.watched = sc.request
	sc.requestNumber++
	if sc.timerSet {
		return
	}
	sc.timerSet, sc.timerNumber = true, sc.requestNumber
	if sc.timer == nil {
		sc.timer = time.AfterFunc(backgroundReadDelay, sc.backgroundRead)
	} else {
		sc.timer.Reset(backgroundReadDelay)
	}
}

// backgroundRead runs on the timer's goroutine. It reads a byte, if the request has been running since the timer was
// set, and otherwise sets the timer again. An error is the end of the connection; a byte is the next request's.
func (sc *serverConn) backgroundRead() {
	defer panics.Contain(sc.server.Log, "the end of a request whose caller left")
	sc.mutex.Lock()
	r := sc.watched
	if r != nil && sc.requestNumber != sc.timerNumber {
		sc.timerNumber = sc.requestNumber
		sc.timer.Reset(backgroundReadDelay)
		sc.mutex.Unlock()
		return
	}
	if sc.timerSet = false; r == nil || sc.backgroundDone != nil {
		sc.mutex.Unlock()
		return
	}
	done := make(chan struct{})
	sc.backgroundDone = done
	_ = sc.conn.SetReadDeadline(time.Time{}) // under the mutex: abortBackgroundRead sets another after it
	sc.mutex.Unlock()
	var one [1]byte
	n, err := sc.read(one[:])
	sc.mutex.Lock()
	sc.pipelined = append(sc.pipelined, one[:n]...)
	left := sc.backgroundDone == done && n == 0 && err != nil // otherwise abortBackgroundRead has made it fail
	sc.mutex.Unlock()
	defer close(done)
	if left {
		r.End(errCallerLeft)
	}
}

// abortBackgroundRead ends the background read, waits for it, and moves the byte that it has read to the buffer.
func (sc *serverConn) abortBackgroundRead() {
	sc.mutex.Lock()
	done := sc.backgroundDone
	sc.watched, sc.backgroundDone = nil, nil
	if done != nil {
		_ = sc.conn.SetReadDeadline(longAgo)
	}
	sc.mutex.Unlock()
	if done == nil {
		return
	}
	<-done
	sc.idleDeadlineSet = longAgo
	sc.start, sc.end = 0, copy(sc.buffer, sc.pipelined)
	sc.pipelined = sc.pipelined[:0]
}
