package envtool

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
)

// The headers of a call. The signature is the HMAC-SHA256 of the timestamp, a dot and the body, in hex.
const (
	timestampHeader = "X-Sovereign-Timestamp"
	signatureHeader = "X-Sovereign-Signature"
)

// maxReply bounds what a tool may answer.
const maxReply = 256 << 10

// Call calls a tool. What goes wrong at the customer's side is a result, which the model sees, and no error.
func (s *Store) Call(ctx context.Context, ws tenant.ID, toolID string, c Call) (Result, error) {
	t, key, err := s.open(ctx, ws, toolID)
	if err != nil {
		return Result{}, err
	}
	c.Tool = t.Name
	body, err := json.Marshal(c)
	if err != nil {
		return Result{}, fmt.Errorf("write a tool call: %w", err)
	}
	timeout := time.Duration(t.TimeoutMS) * time.Millisecond
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	result := s.send(bounded, &t, key, body, timeout)
	if err := ctx.Err(); err != nil { // the caller has left
		return Result{}, context.Cause(ctx)
	}
	result.LatencyMS = time.Since(began).Milliseconds()
	return result, nil
}

func (s *Store) send(ctx context.Context, t *Tool, key secret.Text, body []byte, timeout time.Duration) Result {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.EndpointURL, bytes.NewReader(body))
	if err != nil {
		return Result{Error: "the URL cannot be called"}
	}
	stamp := strconv.FormatInt(s.now().Std().Unix(), 10)
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"sovereign"},
		timestampHeader: {stamp}, signatureHeader: {"v1=" + hex.EncodeToString(sign(key, stamp, body))},
	}
	response, err := s.guard.Transport().RoundTrip(request) // follows no redirect
	if err != nil {
		var blocked *netguard.Blocked
		switch {
		case errors.As(err, &blocked):
			return Result{Error: blocked.Error()}
		case ctx.Err() != nil:
			return Result{Error: fmt.Sprintf("did not answer in %v", timeout)}
		}
		return Result{Error: "could not be reached, or broke off"}
	}
	defer func() { _ = response.Body.Close() }()
	reply, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	result := Result{Status: response.StatusCode}
	switch {
	case err != nil && ctx.Err() != nil:
		result.Error = fmt.Sprintf("did not answer in %v", timeout)
	case err != nil:
		result.Error = "broke off its answer"
	case len(reply) > maxReply:
		result.Error = fmt.Sprintf("answered more than %d bytes", maxReply)
	case response.StatusCode < 200 || response.StatusCode > 299:
		result.Error = "answered " + strconv.Itoa(response.StatusCode)
	default:
		result.read(reply)
	}
	return result
}

// read takes an answer: {content, done?, reward?}.
func (r *Result) read(reply []byte) {
	var answer struct {
		Content *string  `json:"content"`
		Done    bool     `json:"done"`
		Reward  *float64 `json:"reward"`
	}
	switch err := json.Unmarshal(reply, &answer); {
	case err != nil || answer.Content == nil || !utf8.ValidString(*answer.Content):
		r.Error = "answered no JSON object with a text content"
	case answer.Reward != nil && (math.IsNaN(*answer.Reward) || math.Abs(*answer.Reward) > 1e6):
		r.Error = "answered a reward that is out of range"
	default:
		r.Content, r.Done, r.Reward = *answer.Content, answer.Done, answer.Reward
	}
}

func sign(key secret.Text, stamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
