package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/net/breaker"
	"sovereign/internal/wire/upstream"
)

// An SDK multiplies the gateway's attempts by its own, unless it is told that a retry is of no use.
func TestARetryIsDiscouragedWhereItIsOfNoUse(t *testing.T) {
	later := func(status int, wait time.Duration) func(*upstream.Request) (*upstream.Response, error) {
		return func(q *upstream.Request) (*upstream.Response, error) {
			r, err := answers(status, `{}`)(q)
			r.RetryAfter = wait
			return r, err
		}
	}
	for name, c := range map[string]struct {
		answer  func(*upstream.Request) (*upstream.Response, error)
		retries int
		status  int
		final   bool
		tries   int
	}{
		"down, after retries":               {answers(503, `{}`), 1, 502, true, 2},
		"down, and the gateway retries not": {answers(503, `{}`), 0, 502, false, 1},
		"garbage, after retries":            {whole(`nothing`), 1, 502, true, 2},
		"a rejected key":                    {answers(401, `{}`), 1, 502, true, 1},
		"an unknown model":                  {answers(404, `{}`), 0, 502, true, 1},
		"a refused request":                 {answers(400, `{}`), 1, 400, true, 1},
		"a limit":                           {later(429, 7*time.Second), 1, 429, false, 1},
		"a limit for an hour":               {later(429, time.Hour), 1, 429, true, 1},
		"silence":                           {answers(408, `{}`), 1, 408, false, 1},
	} {
		b := newBench(t)
		b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, Retries: c.retries})
		b.answer = c.answer
		_, err := b.ask(plainRequest)
		f := fault.From(err)
		if f == nil || f.Status != c.status || f.Final() != c.final || len(b.sent) != c.tries {
			t.Errorf("%s: %+v, final %v, after %d attempts", name, f, f.Final(), len(b.sent))
		}
	}
}

func TestARetryMayHelpWhereOneOfTheModelsMayRecover(t *testing.T) {
	b := newBench(t, model("m"), model("n"))
	limits := map[string]int{"m": http.StatusTooManyRequests, "n": http.StatusUnauthorized}
	b.answer = func(q *upstream.Request) (*upstream.Response, error) { return answers(limits[q.Model.ID], `{}`)(q) }
	_, err := b.ask(strings.Replace(plainRequest, `{`, `{"models":["n"],`, 1))
	if f := fault.From(err); f == nil || f.Status != http.StatusBadGateway || f.Final() {
		t.Errorf("the first model is at its limit for a moment: %+v", f)
	}
	b.Breaker.Apply(breaker.Settings{Failures: 1, Pause: time.Hour, Longest: time.Hour})
	b.answer = answers(http.StatusServiceUnavailable, `{}`)
	_, _ = b.ask(plainRequest)
	if _, err := b.ask(plainRequest); fault.From(err) == nil || !fault.From(err).Final() {
		t.Errorf("the model is not asked for an hour: %v", err)
	}
}
