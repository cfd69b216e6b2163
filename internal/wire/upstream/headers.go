package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/live"
	"sovereign/internal/net/http1"
)

// authHeaders names the header that carries the API key, and further headers that a protocol requires.
var authHeaders = map[live.Protocol]struct {
	name, before string
	more         []http1.Field
}{
	live.OpenAI:    {name: "Authorization", before: "Bearer "},
	live.Cohere:    {name: "Authorization", before: "Bearer "},
	live.Anthropic: {name: "X-Api-Key", more: []http1.Field{{Name: "Anthropic-Version", Value: "2023-06-01"}}},
	live.Gemini:    {name: "X-Goog-Api-Key"},
}

// requestHeaders returns the complete header of a request. It is built from scratch: no header of a caller reaches a
// provider.
func requestHeaders(p live.Protocol, r *Request, key secret.Text) []http1.Field {
	return append(commonHeaders(p, r.Stream, key), requestIDHeader(r))
}

// commonHeaders returns the headers that all requests with the same key and Accept header share.
func commonHeaders(p live.Protocol, stream bool, key secret.Text) []http1.Field {
	accept := "application/json"
	if stream {
		accept = "text/event-stream"
	}
	wire := authHeaders[p]
	fields := append(make([]http1.Field, 0, 6),
		http1.Field{Name: "Content-Type", Value: "application/json"},
		http1.Field{Name: "User-Agent", Value: "sovereign"}, http1.Field{Name: "Accept", Value: accept})
	if !key.Empty() {
		fields = append(fields, http1.Field{Name: wire.name, Value: wire.before + key.Reveal()})
	}
	return append(fields, wire.more...)
}

// requestIDHeader carries our request id, so that the provider's support can find the request.
func requestIDHeader(r *Request) http1.Field {
	return http1.Field{Name: "X-Client-Request-Id", Value: r.ID}
}

// ErrInvalidAnswer is returned for an answer that violates its protocol.
var ErrInvalidAnswer = errors.New("the provider's answer cannot be read")

// checkEncoding refuses an answer with a content encoding: none was requested.
func checkEncoding(encoding string) error {
	if encoding == "" || encoding == "identity" {
		return nil
	}
	return fmt.Errorf("%w: it is encoded as %q, which was not asked for", ErrInvalidAnswer, encoding)
}

// retryAfter parses Retry-After-Ms and Retry-After. A date is measured against the Date header of the same answer,
// because the provider's clock may differ from ours.
func retryAfter(millis, text, date string) time.Duration {
	if millis != "" {
		if ms, err := strconv.ParseInt(millis, 10, 64); err == nil && ms >= 0 {
			return boundedDelay(ms, time.Millisecond)
		}
	}
	if text == "" {
		return 0
	}
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds >= 0 {
		return boundedDelay(seconds, time.Second)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(date)
	if err != nil {
		now = time.Now()
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}

// maxRetryAfter bounds the delay that a provider can ask for.
const maxRetryAfter = time.Hour

func boundedDelay(n int64, unit time.Duration) time.Duration {
	if n > int64(maxRetryAfter/unit) {
		return maxRetryAfter
	}
	return time.Duration(n) * unit
}
