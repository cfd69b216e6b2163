package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// A logRow is a logged exchange as the API shows it.
type logRow struct {
	ID, Model, Provider, Segment string
	RequestID                    string `json:"request_id"`
	RequestedModel               string `json:"requested_model"`
	Alias, Tag                   *string
	TraceID                      *string `json:"trace_id"`
	FallbackFrom                 *string `json:"fallback_from"`
	FinishReason                 string  `json:"finish_reason"`
	SegmentExact                 string  `json:"segment_exact"`
	Messages, Response, Tools    json.RawMessage
	Stream, Cached               bool
	PromptTokens                 int64      `json:"prompt_tokens"`
	CompletionTokens             int64      `json:"completion_tokens"`
	CostUSD                      money.Nano `json:"cost_usd"`
	CreatedAt                    time.Time  `json:"created_at"`
	ExpiresAt                    time.Time  `json:"expires_at"`
}

// get reads a path as the caller, and returns the status.
func (c *caller) get(t *testing.T, path string, into any) int {
	t.Helper()
	status, body := c.read(t, path)
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			t.Fatalf("%s: %v in %s", path, err, body)
		}
	}
	return status
}

// read is get for a body that is not one JSON value.
func (c *caller) read(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	response, err := c.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer c.client.CloseIdleConnections() // a test that polls makes many callers
	defer func() { _ = response.Body.Close() }()
	if body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// logs reads every row that matches, newest first.
func (c *caller) logs(t *testing.T, filters string) (all []logRow) {
	t.Helper()
	for {
		var page struct {
			Data    []logRow
			Total   int
			HasMore bool `json:"has_more"`
		}
		if status := c.get(t, fmt.Sprintf("/v1/logs?limit=1000&offset=%d&%s", len(all), filters), &page); status != 200 {
			t.Fatalf("logs: %d", status)
		}
		all = append(all, page.Data...)
		if !page.HasMore {
			if page.Total != len(all) {
				t.Errorf("%d rows, and a total of %d", len(all), page.Total)
			}
			return all
		}
	}
}

// logged waits for the row of a request, which is written after the answer.
func (c *caller) logged(t *testing.T, request string) (row logRow) {
	t.Helper()
	eventually(t, "the row of "+request, func() bool {
		for _, r := range c.logs(t, "") {
			if r.RequestID == request {
				row = r
				return true
			}
		}
		return false
	})
	return row
}
