package upstream

import (
	"errors"
	"io"
	"time"

	"sovereign/internal/live"
	"sovereign/internal/text/sse"
)

// Dialect translates between OpenAI's wire format and another API. Implementations do no I/O and keep no state between
// requests.
type Dialect interface {
	// NewExchange translates a request. A parameter that the API cannot express is a *fault.Fault that names it.
	NewExchange(r *Request) (Exchange, error)
	// ErrorAnswer translates an error answer, of any status but 200, into the status and body that OpenAI would have
	// sent. A body without a message in the API's form, such as a proxy's, is returned as it is: the gateway knows
	// other forms.
	ErrorAnswer(status int, body []byte) (int, []byte)
}

// RetryAdvisor is implemented by dialects whose error bodies state a retry delay.
type RetryAdvisor interface {
	RetryAfter(errorBody []byte) time.Duration
}

// Exchange is one translated request and the translation of its answer. It belongs to one attempt.
type Exchange interface {
	// Request returns what is sent: the path below the provider's base URL, and the body.
	Request() (path string, body []byte)
	// Answer translates a complete answer. An answer that cannot be read is an error.
	Answer(body []byte) ([]byte, error)
	// Event appends the translation of one event of a stream to to: complete events, or nothing.
	Event(to []byte, e sse.Event) ([]byte, error)
	// End is called when the connection has ended and appends what is left to send. It returns io.ErrUnexpectedEOF when
	// the answer was not complete.
	End(to []byte) ([]byte, error)
}

// UsageReporter is implemented by bodies and exchanges of providers that report usage before a stream has ended.
// OpenAI's format has no place for it.
type UsageReporter interface {
	// UsageSoFar returns the usage that was reported last, or nil.
	UsageSoFar() *live.Usage
}

// NoStream implements the stream methods of Exchange for endpoints that have no streams.
type NoStream struct{}

// Event implements Exchange.
func (NoStream) Event(to []byte, _ sse.Event) ([]byte, error) {
	return to, errors.New("a stream came, and none was asked for")
}

// End implements Exchange.
func (NoStream) End(to []byte) ([]byte, error) { return to, io.ErrUnexpectedEOF }
