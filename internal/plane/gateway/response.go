package gateway

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
)

// A Writer takes an answer.
type Writer interface {
	Header() http.Header
	WriteHeader(status int)
	Send(p []byte) error // writes p at once, without buffering
	End(p []byte) error  // is Send for the last bytes of the answer
}

// A response is what the caller is sent.
type response struct {
	out       Writer
	request   interface{ callerLeft() } // is told when a write fails
	clock     *stopwatch
	writing   sync.Mutex  // separates the answer from keep-alive comments
	begun     bool        // the header is written: no other attempt is possible
	delivered atomic.Bool // some content was sent
	left      atomic.Bool // the caller has disconnected: nothing is written any more
	waiting   atomic.Bool // for an engine of the server: nothing is sent to one yet
}

// A head is the status and headers of an answer.
type head struct {
	contentType string
	length      int    // of the body; -1 if it is not known
	model       string // that serves the request
	alias       string // that was resolved; empty for none
	cache       string // "hit" or "miss"; empty if the cache is not used
}

// begin writes the status and the headers.
func (w *response) begin(h *head) {
	header := w.out.Header() // names are in canonical form, which saves canonicalising them
	values := make([]string, 0, 5)
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Content-Type", h.contentType)
	set("X-Service-Served-Model", h.model)
	if h.alias != "" {
		set("X-Service-Alias", h.alias)
	}
	if h.cache != "" {
		set("X-Service-Cache", h.cache)
	}
	if h.contentType == eventStream {
		header["X-Accel-Buffering"] = unbuffered
	}
	if h.length >= 0 {
		set("Content-Length", strconv.Itoa(h.length))
	}
	w.out.WriteHeader(http.StatusOK)
	w.begun = true
}

// eventStream is the content type of every stream.
const eventStream = "text/event-stream; charset=utf-8"

// unbuffered asks a proxy to pass a stream on as it comes: nginx would hold it back until it has a page of it. The
// value is shared and never changed in place.
var unbuffered = []string{"no"}

// send writes bytes to the caller. It returns false if the caller has left.
func (w *response) send(p []byte) bool { return !w.left.Load() && w.wrote(w.out.Send(p)) }

// end writes the last bytes.
func (w *response) end(p []byte) bool { return !w.left.Load() && w.wrote(w.out.End(p)) }

// wrote notes the result of a write.
func (w *response) wrote(err error) bool {
	w.clock.waitedForOthers()
	if err != nil {
		w.request.callerLeft()
	}
	return err == nil
}
