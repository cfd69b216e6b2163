package demo

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
)

// callTimeout bounds one request of a fill.
const callTimeout = 2 * time.Minute

// A client calls the server's API within the process, with a key, as a customer's client would over the network.
type client struct {
	handler http.Handler
	key     secret.Text
}

// A call is one request.
type call struct {
	method, path string
	body         any
	once         string // its Idempotency-Key
	header       map[string]string
}

// An answer is a response that was read whole.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements http.Flusher: without it, the gateway would take the caller for one that has left.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// send sends a request, and returns whatever the answer is.
func (c *client) send(ctx context.Context, in call) (*answer, error) {
	body := []byte(nil)
	if in.body != nil {
		var err error
		if body, err = json.Marshal(in.body, json.Deterministic(true)); err != nil {
			return nil, fmt.Errorf("write a request to %s: %w", in.path, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, in.method, "http://localhost"+in.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	if in.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if in.once != "" {
		request.Header.Set("Idempotency-Key", in.once)
	}
	for name, value := range in.header {
		request.Header.Set(name, value)
	}
	out := &answer{header: http.Header{}}
	c.handler.ServeHTTP(out, request)
	return out, nil
}

// do sends a request that must succeed, and reads its answer into something, if it is not nil. A refusal is returned as
// one, which ends the fill; what may pass, such as a server that is stopping, is another error, and is tried again.
func (c *client) do(ctx context.Context, in call, into any) error {
	out, err := c.send(ctx, in)
	switch {
	case err != nil:
		return err
	case out.status >= http.StatusInternalServerError, out.status == http.StatusTooManyRequests,
		out.status == http.StatusRequestTimeout:
		return fmt.Errorf("%s %s: %d %s", in.method, in.path, out.status, out.message())
	case out.status >= http.StatusBadRequest || out.status == 0:
		return fault.Conflict(
			"the demo could not be made: %s %s answered %d: %s", in.method, in.path, out.status, out.message(),
		)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(out.body.Bytes(), into); err != nil {
		return fmt.Errorf("read the answer of %s: %w", in.path, err)
	}
	return nil
}

// message is what a refusal says.
func (a *answer) message() string {
	var refused struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &refused); err != nil {
		return ""
	}
	return refused.Error.Message
}

// work is a job of the API, as far as a fill reads it.
type work struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Error  *string `json:"error"`
}

// pollEvery is how often a fill looks whether a job has ended.
const pollEvery = 100 * time.Millisecond

// await returns when the job at a path is done. One that ended otherwise is a refusal.
func (c *client) await(ctx context.Context, path string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		var now work
		if err := c.do(ctx, call{method: http.MethodGet, path: path}, &now); err != nil {
			return err
		}
		switch now.Status {
		case "DONE":
			return nil
		case "FAILED", "CANCELLED":
			why := ""
			if now.Error != nil {
				why = ": " + *now.Error
			}
			return fault.Conflict("the demo could not be made: %s is %s%s", path, now.Status, why)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
