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

// keyed is where a provider looks for its key, and what else its wire wants in every head.
var keyed = map[live.Protocol]struct {
	name, before string
	more         []http1.Field
}{
	live.OpenAI:    {name: "Authorization", before: "Bearer "},
	live.Cohere:    {name: "Authorization", before: "Bearer "},
	live.Anthropic: {name: "X-Api-Key", more: []http1.Field{{Name: "Anthropic-Version", Value: "2023-06-01"}}},
	live.Gemini:    {name: "X-Goog-Api-Key"},
}

// head is a request's, built from nothing: no header of a caller's can reach a provider.
func head(p live.Protocol, r *Request, key secret.Text) []http1.Field {
	return append(letterhead(p, r.Stream, key), named(r))
}

// letterhead is what all requests to a provider have in common, with one key.
func letterhead(p live.Protocol, stream bool, key secret.Text) []http1.Field {
	accept := "application/json"
	if stream {
		accept = "text/event-stream"
	}
	wire := keyed[p]
	fields := append(make([]http1.Field, 0, 6),
		http1.Field{Name: "Content-Type", Value: "application/json"}, http1.Field{Name: "User-Agent", Value: "sovereign"}, http1.Field{Name: "Accept", Value: accept})
	if !key.Empty() {
		fields = append(fields, http1.Field{Name: wire.name, Value: wire.before + key.Reveal()})
	}
	return append(fields, wire.more...)
}

// named tells a provider our id of a request, for its support.
func named(r *Request) http1.Field {
	return http1.Field{Name: "X-Client-Request-Id", Value: r.ID}
}

// ErrGarbage says that an answer is not what its protocol allows.
var ErrGarbage = errors.New("the provider's answer cannot be read")

// encoded refuses an answer in an encoding that nobody asked for.
func encoded(encoding string) error {
	if encoding == "" || encoding == "identity" {
		return nil
	}
	return fmt.Errorf("%w: it is encoded as %q, which was not asked for", ErrGarbage, encoding)
}

// retryAfter is how long a provider asks to be left alone. Its clock is not ours: a date counts from its own.
func retryAfter(millis, text, date string) time.Duration {
	if millis != "" {
		if ms, err := strconv.ParseInt(millis, 10, 64); err == nil && ms >= 0 {
			return bounded(ms, time.Millisecond)
		}
	}
	if text == "" {
		return 0
	}
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds >= 0 {
		return bounded(seconds, time.Second)
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

// maxRetryAfter bounds what is believed.
const maxRetryAfter = time.Hour

func bounded(n int64, unit time.Duration) time.Duration {
	if n > int64(maxRetryAfter/unit) {
		return maxRetryAfter
	}
	return time.Duration(n) * unit
}
