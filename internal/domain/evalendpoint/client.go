package evalendpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/text/redact"
	"sovereign/internal/text/scan"
)

// Limits of a call.
const (
	callTimeout     = 5 * time.Minute // until the answer is whole
	maxAnswer       = 4 << 20
	maxRefusal      = 64 << 10 // of an error's body, of which the rest is not read
	maxRetrySeconds = 60
)

const jsonType = "application/json"

// A Client has endpoints answer.
type Client struct {
	store     *Store
	transport http.RoundTripper
	timeout   time.Duration
}

// NewClient calls the endpoints of s through guard alone.
func NewClient(s *Store, guard *netguard.Guard) *Client {
	return &Client{store: s, transport: guard.Transport(), timeout: callTimeout}
}

// An Answer is a whole chat completion. It does not hold the endpoint's key.
type Answer struct {
	Body    []byte        // the chat completion, which chat.Answer can decode
	Latency time.Duration // until the answer was whole
}

// Complete has an endpoint complete a chat once. body is a chat completion request that is not streamed, of which the
// model is replaced. Nothing is charged. An endpoint that does not answer is a fault, and the workspace may read it:
//
//	fault.Missing           it was deleted
//	fault.UnknownProvider   it cannot be called as it is registered, or refuses its key, whatever the request
//	fault.InvalidParameter  it refuses this request, or answers something else than a chat completion
//	fault.Upstream, fault.Timeout, fault.RateLimited  another call may succeed
func (c *Client) Complete(ctx context.Context, ws tenant.ID, id string, body []byte) (Answer, error) {
	to, err := c.store.open(ctx, ws, id)
	if err != nil {
		return Answer{}, err
	}
	if body, err = withModel(body, to.model); err != nil {
		return Answer{}, err
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	begun := time.Now()
	whole, err := c.call(limited, to, body)
	switch {
	case err == nil:
		return Answer{Body: whole, Latency: time.Since(begun)}, nil
	case ctx.Err() != nil:
		return Answer{}, context.Cause(ctx)
	case limited.Err() != nil:
		return Answer{}, fault.Timeout.New("the endpoint %q did not answer in time", to.name)
	}
	return Answer{}, err
}

// withModel returns a request with another model.
func withModel(body []byte, model string) ([]byte, error) {
	name, err := json.Marshal(model)
	if err != nil {
		return nil, fmt.Errorf("write an endpoint's model: %w", err)
	}
	members, err := scan.Object(body, nil)
	if err != nil {
		return nil, fmt.Errorf("the request %w", err)
	}
	for _, m := range members {
		if m.Name == "model" {
			return bytes.Join([][]byte{body[:m.ValueStart()], name, body[m.End:]}, nil), nil
		}
	}
	return nil, errors.New("the request names no model")
}

// call sends a request, and reads the answer. It follows no redirect: that would take key and request elsewhere.
func (c *Client) call(ctx context.Context, to *target, body []byte) ([]byte, error) {
	url := to.url.String() + "/chat/completions"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("call the endpoint %s: %w", to.name, err)
	}
	request.Header = http.Header{"Content-Type": {jsonType}, "Accept": {jsonType}, "User-Agent": {"sovereign"}}
	if !to.key.Empty() {
		request.Header.Set("Authorization", "Bearer "+to.key.Reveal())
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return nil, to.unreachable(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what came before an error counts
		how := "answered " + strconv.Itoa(response.StatusCode)
		return nil, to.refused(response.StatusCode, how, response.Header.Get("Retry-After"), text)
	}
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || kind != jsonType || response.Header.Get("Content-Encoding") != "" {
		return nil, to.final("answers with something else than plain " + jsonType)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, to.unreachable(err)
	case len(text) > maxAnswer:
		return nil, to.final("answers with more than 4 MiB")
	}
	return to.read(text)
}

// unreachable is the fault of a connection that failed. A name that is private or unknown may lead elsewhere the next
// time, and both are refused alike, so that a customer cannot tell them apart.
func (to *target) unreachable(err error) error {
	cause := errors.New(redact.Known(err.Error(), to.key.Reveal())) // it may quote what the server sent
	var blocked *netguard.Blocked
	if errors.As(err, &blocked) {
		return fault.Upstream.Because(cause, "the endpoint %q cannot be called: %s", to.name, blocked)
	}
	return fault.Upstream.Because(cause, "the endpoint %q could not be reached, or broke off", to.name)
}

// refused is the fault of an error that the endpoint answered with, by the status that it has or means.
func (to *target) refused(status int, how, retryAfter string, body []byte) error {
	clean := func(text string) string { return redact.String(redact.Known(text, to.key.Reveal())) }
	if said := answer.ReadError(body, clean).Message; said != "" {
		how += ": " + said
	}
	switch {
	case status == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(retryAfter)
		wait := time.Duration(min(max(seconds, 1), maxRetrySeconds)) * time.Second
		return fault.RateLimited.New("the endpoint %q %s", to.name, how).In(wait)
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return fault.Upstream.New("the endpoint %q %s", to.name, how)
	case status == http.StatusUnauthorized: // no other request fares better, and an eval would pay other models in vain
		return fault.UnknownProvider.New("the endpoint %q %s", to.name, how)
	case status < http.StatusBadRequest:
		return to.final(how + ", and no redirect is followed")
	}
	return to.final(how)
}

// final is the fault of a request that would get no other answer the next time.
func (to *target) final(what string) error {
	f := fault.InvalidParameter.New("the endpoint %q %s", to.name, what)
	f.Field = "model"
	return f
}
