package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/notice"
)

// Limits of an attempt.
const (
	attemptTimeout = 15 * time.Second
	maxReply       = 64 << 10 // of an answer, of which the rest is not read
)

// A payload is the body of a webhook, in the form that Standard Webhooks recommends.
type payload struct {
	Type notice.Kind `json:"type"`
	At   clock.Time  `json:"timestamp"`
	Data payloadData `json:"data"`
}

type payloadData struct {
	ID        string    `json:"id"`
	Workspace tenant.ID `json:"workspace_id"`
	Subject   string    `json:"subject"`
	Title     string    `json:"title"`
	Text      string    `json:"text"`
	URL       string    `json:"url,omitempty"`
}

// post sends a notice to a webhook. It follows no redirect: that would take the notice elsewhere.
func (l *Loop) post(ctx context.Context, to *target, ws tenant.ID, n *Sent) result {
	body, err := json.Marshal(payload{n.Kind, n.At, payloadData{
		n.ID, ws, n.Subject, n.Title, n.Text, l.page(ws, n.Link),
	}})
	if err != nil {
		return result{failure: "the notice cannot be written"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), bytes.NewReader(body))
	if err != nil {
		return result{failure: "the URL cannot be called"}
	}
	stamp := strconv.FormatInt(l.store.now().Std().Unix(), 10)
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"sovereign"},
		"Webhook-Id": {n.ID}, "Webhook-Timestamp": {stamp},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(sign(to.key, n.ID, stamp, body))},
	}
	response, err := l.transport.RoundTrip(request)
	if err != nil {
		var blocked *netguard.Blocked
		switch {
		case errors.As(err, &blocked):
			return result{failure: blocked.Error()}
		case ctx.Err() != nil:
			return result{failure: fmt.Sprintf("did not answer in %v", attemptTimeout)}
		}
		return result{failure: "could not be reached, or broke off"}
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxReply)) // so that the connection can be used again
	if response.StatusCode < 200 || response.StatusCode > 299 {
		how := "answered " + strconv.Itoa(response.StatusCode)
		return result{failure: how, gone: response.StatusCode == http.StatusGone}
	}
	return result{}
}

// sign is the signature of a body: the HMAC-SHA256 of id, time and body.
func sign(key secret.Text, id, stamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
