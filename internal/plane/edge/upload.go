package edge

import (
	"io"
	"net/http"
	"time"

	"sovereign/internal/net/fastpath"
	"sovereign/internal/net/pace"
)

// An upload reads the body of a request, and fails when it arrives too slowly.
type upload struct {
	body    io.Reader
	call    *call
	meter   pace.Meter
	control *http.ResponseController // sets the read deadlines; nil before the first read, and where none are needed
	begun   bool
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	if !u.begun {
		u.begin()
	}
	n, err := u.body.Read(p)
	if u.control != nil && u.meter.Add(n) {
		u.extend()
	}
	return n, err
}

// begin sets the first deadline, unless the body has deadlines of its own or no bytes.
func (u *upload) begin() {
	u.begun = true
	_, paced := u.body.(fastpath.PacedBody)
	to := u.call.out.ResponseWriter
	if paced || u.body == http.NoBody || u.meter.Timeout == 0 || to == nil {
		return
	}
	u.control = http.NewResponseController(to)
	u.extend()
}

// extend sets the deadline of the next window. One that has passed fails the next read.
func (u *upload) extend() {
	deadline, ok := u.meter.Next(time.Now())
	if ok && u.control.SetReadDeadline(deadline) != nil {
		u.control = nil // a body that does not come over a network
	}
}

// end removes the deadline of a body that was read to its end: the response may take longer. The deadline of any other
// body stays, since net/http's server reads on after the response.
func (u *upload) end() {
	if u.control != nil {
		_ = u.control.SetReadDeadline(time.Time{}) // a connection that was closed needs none
	}
}

// Stream returns the body of a request for a handler that stores it while it comes. It fails when it comes too slowly.
func (b *Bounds) Stream(r *http.Request) io.Reader {
	return &upload{body: r.Body, call: callOf(r.Context()), meter: pace.Meter{Limit: b.Pace}}
}
