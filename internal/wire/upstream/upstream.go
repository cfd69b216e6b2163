// Package upstream speaks with the providers of models: it sends a request's bytes and hands back an answer as it
// arrives. On the road every answer is in OpenAI's wire; a provider that speaks another is translated here. What an
// answer means, and what it costs, is the gateway's to say.
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

// A Request is one try at one model.
type Request struct {
	Model       *live.Model
	Path        string       // one of our endpoints'
	Body        [][]byte     // the caller's bytes, with what had to change in between
	Room        [3][]byte    // for them, mostly
	Lease       Lease        // of the body; nil when its bytes are nobody else's later
	Stream      bool         // server-sent events are asked for
	ID          string       // our id of the request, for the provider's support
	Credentials *Credentials // the workspace's own way to the provider; nil for the server's

	Take func(bytes int64) bool // asks for room for that many bytes more; nil is as much as one wants
}

// A Lease keeps a body's bytes from being used for something else. Whoever may still read them after the answer's body was
// closed takes it before, and releases it once.
type Lease interface {
	Take()
	Release()
}

// Own is how a workspace reaches a provider with a key of its own.
type Credentials struct {
	Key     secret.Text
	BaseURL string // empty for the provider's
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
	Length      int64         // of the body; 0 when it is not known
	Body        io.ReadCloser // may also be a fastpath.Pieces or a fastpath.PolledBody
}

// A Sender reaches one provider. Send returns when the head of the answer is there; reading the body fails when ctx
// ends. What the provider's wire cannot express is a *fault.Fault that names it, and nothing was sent.
type Sender interface {
	Send(ctx context.Context, r *Request) (*Response, error)
	// Close gives up idle connections; running requests go on.
	Close()
}
