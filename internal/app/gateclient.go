package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/secret"
	"sovereign/internal/domain/eval"
	"sovereign/internal/store/job"
)

// Limits of the requests of sovereign gate.
const (
	gateRequestTimeout = time.Minute
	gateTries          = 5 // of one request: a server that restarts is waited for
	maxGateAnswer      = 4 << 20
)

// A gateClient reads an eval and its gate from a server.
type gateClient struct {
	base  string
	key   secret.Text
	http  *http.Client
	look  time.Duration // between two looks at a run
	pause time.Duration // before the first retry; it doubles
}

// newGateClient asks the server at a URL, which may end in /v1. It follows no redirect, since the key goes with it.
func newGateClient(base, key string) (*gateClient, error) {
	at, err := url.Parse(base)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil ||
		strings.ContainsAny(base, "?#") {
		return nil, errors.New("--url must be a URL such as https://models.example.com, without a user or a query")
	}
	key = strings.TrimSpace(key)
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("the API key must be one word")
	}
	return &gateClient{
		base: strings.TrimSuffix(strings.TrimRight(base, "/"), "/v1"), key: secret.New(key),
		look: 2 * time.Second, pause: time.Second,
		http: &http.Client{
			Timeout:       gateRequestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// An evalState is what the command reads of an eval.
type evalState struct {
	ID       string       `json:"id"`
	Status   job.Status   `json:"status"`
	Progress job.Progress `json:"progress"`
	Failure  *string      `json:"error"`
	body     []byte
}

func (s *evalState) String() string {
	return fmt.Sprintf("%s %s, %d of %d", printable(s.ID), s.Status, s.Progress.Done, s.Progress.Total)
}

func (s *evalState) reason() string {
	if s.Failure == nil || *s.Failure == "" {
		return ""
	}
	return ": " + printable(*s.Failure)
}

// await reads an eval until it has ended.
func (c *gateClient) await(ctx context.Context, id string, progress func(*evalState)) (*evalState, error) {
	for {
		status, body, err := c.get(ctx, "/v1/evals/"+url.PathEscape(id))
		if err != nil {
			return nil, err
		}
		run := &evalState{body: body}
		if status != http.StatusOK {
			return nil, gateFault(status, body)
		}
		if err := json.Unmarshal(body, run); err != nil || run.ID != id || !known(run.Status) {
			return nil, errors.New("the server's answer is not an eval: is --url right?")
		}
		progress(run)
		if run.Status.Ended() {
			return run, nil
		}
		if err := sleep(ctx, c.look); err != nil {
			return nil, err
		}
	}
}

func known(s job.Status) bool {
	switch s {
	case job.Queued, job.Running, job.Done, job.Failed, job.Cancelled:
		return true
	}
	return false
}

// A gateVerdict is the answer of a deploy gate, with status 200 or 412.
type gateVerdict struct {
	Object    string       `json:"object"`
	Pass      bool         `json:"pass"`
	EvalID    string       `json:"eval_id"`
	Candidate string       `json:"candidate"`
	Checks    []eval.Check `json:"checks"`
	Error     struct {
		Message string `json:"message"`
	} `json:"error"`
	body []byte
}

// gate asks the gate of an eval that is done. It is asked for checks, by their names, and passes only if the server
// says so of each.
func (c *gateClient) gate(
	ctx context.Context, id, candidate string, confidence *float64, checks url.Values,
) (*gateVerdict, error) {
	query := url.Values{}
	for name := range checks {
		query[name] = checks[name]
	}
	if candidate != "" {
		query.Set("candidate", candidate)
	}
	if confidence != nil {
		query.Set("confidence", strconv.FormatFloat(*confidence, 'g', -1, 64))
	}
	status, body, err := c.get(ctx, "/v1/evals/"+url.PathEscape(id)+"/gate?"+query.Encode())
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK && status != http.StatusPreconditionFailed {
		return nil, gateFault(status, body)
	}
	v := &gateVerdict{body: body}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, errors.New("the server's answer is not a gate's: is --url right?")
	}
	if status == http.StatusPreconditionFailed {
		v.Pass = false
		return v, nil
	}
	return v, v.confirm(id, candidate, checks)
}

// confirm refuses an answer with status 200 that does not say that everything passed which was asked for.
func (v *gateVerdict) confirm(id, candidate string, asked url.Values) error {
	if v.Object != "gate" || !v.Pass || v.EvalID != id || candidate != "" && v.Candidate != candidate {
		return errors.New("the server's answer is not that of this gate: is --url right?")
	}
	passed := map[string]bool{}
	for i := range v.Checks {
		if !v.Checks[i].Pass {
			return fmt.Errorf("the server's answer contradicts itself: %s does not pass", printable(v.Checks[i].Check))
		}
		passed[v.Checks[i].Check] = true
	}
	for name := range asked {
		if !passed[name] {
			return fmt.Errorf("the server does not answer %s: is it older than this command?", name)
		}
	}
	return nil
}

func gateFault(status int, body []byte) error {
	return errors.New(printable(refusal(status, body).Error()))
}

// retried reports whether a status may be gone at the next try.
func retried(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return false
}

// get reads a path, and tries again while the server cannot be reached.
func (c *gateClient) get(ctx context.Context, path string) (status int, body []byte, err error) {
	for try, wait := 1, c.pause; ; try, wait = try+1, 2*wait {
		status, body, err = c.getOnce(ctx, path)
		if ctx.Err() != nil {
			return 0, nil, context.Cause(ctx)
		}
		if err == nil && !retried(status) || try == gateTries {
			return status, body, err
		}
		if err := sleep(ctx, wait); err != nil {
			return 0, nil, err
		}
	}
}

func (c *gateClient) getOnce(ctx context.Context, path string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "sovereign/"+release)
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("the server did not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxGateAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("the server's answer broke off: %w", err)
	}
	return response.StatusCode, bytes.TrimSpace(body), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
