// Package upstream speaks with the providers of models: it sends a request's bytes and hands back an answer as it
// arrives. What an answer means, and what it costs, is the gateway's to say.
package upstream

import (
	"context"
	"io"
	"time"

	"sovereign/internal/live"
)

// A Request is one try at one model.
type Request struct {
	Model  *live.Model
	Path   string   // below the provider's base URL: /chat/completions, /embeddings
	Body   [][]byte // the caller's bytes, with what had to change in between
	Stream bool     // server-sent events are asked for
	ID     string   // our id of the request, for the provider's support
}

// Length is the body's.
func (r *Request) Length() (n int64) {
	for _, part := range r.Body {
		n += int64(len(part))
	}
	return n
}

// A Response is a provider's answer. Whoever gets one closes its Body.
type Response struct {
	Status      int
	ContentType string
	RetryAfter  time.Duration // 0 when the provider says nothing
	Body        io.ReadCloser
}

// A Sender reaches one provider. Send returns when the head of the answer is there; reading the body fails when ctx
// ends.
type Sender interface {
	Send(ctx context.Context, r *Request) (*Response, error)
	// Close gives up idle connections; running requests go on.
	Close()
}
