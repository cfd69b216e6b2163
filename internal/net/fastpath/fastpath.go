// Package fastpath names the optional abilities by which the layers of the request path recognise each other: the
// HTTP/1 server and client, the edge, and the gateway. Each ability saves copies, buffers or wake-ups. A value without
// it still works by the ordinary way of net/http, only slower.
//
// Such an ability is found by a type assertion, so a renamed method would turn it off without an error. Therefore every
// implementation has a line `var _ fastpath.Name = (*implementation)(nil)` beside it, and a test of package gateway
// sends a stream through all layers and fails if one of them was not used.
package fastpath

import (
	"time"

	"sovereign/internal/net/poller"
)

// ChunkReader is a response body that hands out its own buffer instead of copying into the reader's.
type ChunkReader interface {
	// Next returns what comes next. It is valid until the next call. An empty piece without an error says that the
	// provider is alive.
	Next() ([]byte, error)
}

// PolledBody is a response body that the poller can serve: one goroutine reads many streams without blocking.
type PolledBody interface {
	ChunkReader
	// Poll has turn called on the poller's goroutine whenever bytes have arrived, until turn returns false or the
	// exchange ends. It returns false at once if the body cannot be polled.
	Poll(p *poller.Poller, turn func(now time.Time) bool) bool
	// TryNext is Next without blocking. It returns an empty piece and true when nothing has arrived, and false when
	// Next must be called, because of an end or an error.
	TryNext() (piece []byte, ok bool)
}

// DirectWriter is a response writer that sends without net/http's buffering.
type DirectWriter interface {
	// Send writes p, and everything buffered before it, at once.
	Send(p []byte) error
	// End is Send for the last bytes of a response: it tells the client at once that nothing follows.
	End(p []byte) error
}

// TrySender is a response writer that can send without blocking.
type TrySender interface {
	// TrySend returns a function that sends p, for a response whose header was written, or nil if the writer cannot
	// send without blocking. The function returns false when a part of p stays buffered: the next Send sends it.
	TrySend() func(now time.Time, p []byte) bool
}

// TryWriter is a connection that can be written to without blocking.
type TryWriter interface {
	// TryWrite writes without blocking, as much of p as fits into the socket's buffer. It returns 0, nil when the
	// buffer is full.
	TryWrite(now time.Time, p []byte) (int, error)
}

// ValueKeeper is a request's context that can hold one more value, so that no context has to be wrapped around it.
type ValueKeeper interface {
	Keep(key, value any)
}

// PacedBody is a request body whose reads fail by themselves when it arrives too slowly: see package pace.
type PacedBody interface {
	Paced()
}
