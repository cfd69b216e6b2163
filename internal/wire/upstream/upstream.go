// Package upstream sends requests to model providers and returns their answers as they arrive. The gateway speaks
// OpenAI's wire format only: a provider with another API is reached through a [Dialect], which translates requests,
// answers, streams and errors. What an answer means and what it costs is decided by the gateway.
//
// docs/recipes.md says how to add a dialect.
package upstream

import (
	"context"
	"io"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/live"
)

// The paths of our endpoints, below a provider's base URL.
const (
	ChatPath       = "/chat/completions"
	EmbeddingsPath = "/embeddings"
	RerankPath     = "/rerank"
	ResponsesPath  = "/responses"
)

// Request is one attempt at one model.
type Request struct {
	Model       *live.Model
	Path        string       // ChatPath, EmbeddingsPath, RerankPath or ResponsesPath
	Body        [][]byte     // the caller's bytes, with replaced values in between
	BodyStorage [3][]byte    // backing array of Body for up to three parts
	BodyRef     RefCounted   // reference count of Body's buffer; nil when the buffer is never reused
	Stream      bool         // the caller asked for server-sent events
	ID          string       // request id, sent to the provider as X-Client-Request-Id
	Credentials *Credentials // the workspace's own key; nil for the server's key

	Reserve func(bytes int64) bool // reserves memory before it is allocated; nil means no limit
}

// RefCounted is the reference count of a buffer that is reused when the count drops to zero. A sender that may still
// read Request.Body after the answer's body was closed calls Retain before and Release once when it is done.
type RefCounted interface {
	Retain()
	Release()
}

// Credentials are a workspace's own key for a provider.
type Credentials struct {
	Key     secret.Text
	BaseURL string // empty for the provider's base URL
}

// Length returns the length of the body in bytes.
func (r *Request) Length() (n int64) {
	for _, part := range r.Body {
		n += int64(len(part))
	}
	return n
}

// Response is a provider's answer. The caller of Send closes its Body.
type Response struct {
	Status      int
	ContentType string
	RetryAfter  time.Duration // 0 when the provider sent none
	Length      int64         // length of the body; 0 when unknown
	Body        io.ReadCloser // may also be a fastpath.ChunkReader or a fastpath.PolledBody
}

// Sender sends requests to one provider. Send returns when the header of the answer has arrived; reading the body fails
// when ctx ends. When the provider's API cannot express the request, Send returns a *fault.Fault that names the
// parameter, and nothing is sent.
type Sender interface {
	Send(ctx context.Context, r *Request) (*Response, error)
	// Close closes idle connections. Running requests continue.
	Close()
}
