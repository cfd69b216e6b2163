package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An answer is one response that is being sent. Its methods return false when the client is gone.
type answer struct {
	w      http.ResponseWriter
	r      *http.Request
	wire   *wire
	log    *log
	record *record
	plan   plan
	ask    ask
	zip    *gzip.Writer // nil when the answer is plain
	begun  bool
	played int // events of a stream that were sent
}

// faults are the ways in which an answer goes wrong. Each is the last thing that happens to it.
var faults = map[string]func(*answer){
	"hang":        func(a *answer) { <-a.r.Context().Done() },
	"reset":       func(a *answer) { a.cut(true) },
	"die":         func(a *answer) { a.cut(false) },
	"end":         func(*answer) {},
	"garbage":     func(a *answer) { a.begin(); a.write("data: \x00\x1f{\"neither\": JSON <nor events>\n\n") },
	"error_event": func(a *answer) { a.lines(a.wire.broken(a, "the provider broke down in the middle")) },
}

// strikes makes the plan's fault happen if it is due after that many chunks, and reports whether it did.
func (a *answer) strikes(chunks int) bool {
	if a.plan.fault == "" || a.plan.after > chunks {
		return false
	}
	faults[a.plan.fault](a)
	return true
}

// begin sends the head, once.
func (a *answer) begin() {
	contentType := "application/json"
	if a.ask.Stream {
		contentType = "text/event-stream; charset=utf-8"
	}
	a.head(http.StatusOK, contentType)
}

func (a *answer) head(status int, contentType string) {
	if a.begun {
		return
	}
	a.begun = true
	header := a.w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-cache")
	if a.plan.gzip {
		header.Set("Content-Encoding", "gzip")
		a.zip = gzip.NewWriter(a.w)
	}
	a.log.change(a.record, func(r *record) { r.Status = status })
	a.w.WriteHeader(status)
}

// write sends text, in the pieces that the plan wants.
func (a *answer) write(text string) bool {
	step := len(text)
	if a.plan.split > 0 {
		step = a.plan.split
	}
	var to io.Writer = a.w
	if a.zip != nil {
		to = a.zip
	}
	for part := range slices.Chunk([]byte(text), max(step, 1)) {
		if _, err := to.Write(part); err != nil || !a.flush() {
			a.cancelled()
			return false
		}
	}
	return true
}

func (a *answer) flush() bool {
	if a.zip != nil && a.zip.Flush() != nil {
		return false
	}
	return http.NewResponseController(a.w).Flush() == nil
}

// lines sends lines of an event stream.
func (a *answer) lines(text string) bool {
	if a.plan.crlf {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return a.write(text)
}

func (a *answer) event(value any) bool { return a.lines("data: " + encode(value) + "\n\n") }

// whole sends value as an answer in one piece, or half of it where the plan has a fault.
func (a *answer) whole(value any) {
	text := encode(value)
	switch a.plan.fault {
	case "":
		a.measure(text)
		a.begin()
		if a.write(text) {
			a.finish()
		}
	case "error_event":
		a.begin()
		a.write(encode(a.wire.refusal(
			a, http.StatusInternalServerError, "", "", "the provider broke down, and says 200",
		)))
	default:
		a.begin()
		if a.write(text[:len(text)/2]) {
			faults[a.plan.fault](a)
		}
	}
}

// measure announces the length of a whole answer, unless the plan wants it in chunks.
func (a *answer) measure(text string) {
	if !a.plan.gzip && a.plan.split == 0 {
		a.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	}
}

// refuse sends an error.
func (a *answer) refuse(status int, code, parameter, message string) {
	for name, value := range map[string]string{"Retry-After": a.plan.retryAfter, "X-Should-Retry": a.plan.shouldRetry} {
		if value != "" {
			a.w.Header().Set(name, value)
		}
	}
	text := encode(a.wire.refusal(a, status, code, parameter, message))
	a.measure(text)
	a.head(status, "application/json")
	if a.write(text) {
		a.finish()
	}
}

// cut closes the connection under the answer: with a reset, or in good order but before the end.
func (a *answer) cut(reset bool) {
	conn, _, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// pause waits, as long as the client does.
func (a *answer) pause(d time.Duration) bool {
	if d <= 0 {
		return a.r.Context().Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.r.Context().Done():
		return false
	}
}

// await waits for the end of another context. It is false when the client leaves first.
func (a *answer) await(other context.Context) bool {
	select {
	case <-other.Done():
		return true
	case <-a.r.Context().Done():
		return false
	}
}

// finish records that the answer is complete. A client that leaves from now on has missed nothing.
func (a *answer) finish() {
	if a.zip != nil && a.zip.Close() != nil {
		return
	}
	a.log.change(a.record, func(r *record) { r.Finished, r.CancelledAt = true, nil })
}

func (a *answer) cancelled() {
	now := time.Now().UTC()
	a.log.change(a.record, func(r *record) {
		if !r.Finished && r.CancelledAt == nil {
			r.CancelledAt = &now
		}
	})
}

// envelope is the shape of OpenAI's errors; an empty code or parameter is null.
func envelope(message, kind, code, parameter string) any {
	orNull := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	return map[string]any{"error": map[string]any{
		"message": message, "type": kind, "code": orNull(code), "param": orNull(parameter),
	}}
}

func encode(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // only values made here come here
	}
	return strings.TrimSuffix(out.String(), "\n")
}
