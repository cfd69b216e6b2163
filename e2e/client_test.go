package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// A caller sends inference requests to a server with one key.
type caller struct {
	address, key string
	header       http.Header // in addition to the usual ones
	client       *http.Client
}

func (s *process) caller() *caller { return s.callerWith(s.key()) }

func (s *process) callerWith(key string) *caller {
	return &caller{address: s.address(), key: key, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

// An answer is what a caller received.
type answer struct {
	status int
	header http.Header
	body   []byte
	events []string // of a stream, without "data: "
	done   bool     // it is complete: the body, or the stream up to [DONE]
}

func (a *answer) id() string { return a.header.Get("X-Request-Id") }

// code is the code of a refusal.
func (a *answer) code() string {
	var envelope struct {
		Error struct {
			Code, Type *string
		}
	}
	if json.Unmarshal(a.body, &envelope) != nil || envelope.Error.Type == nil {
		return "no envelope: " + string(a.body)
	}
	if envelope.Error.Code == nil {
		return "null"
	}
	return *envelope.Error.Code
}

// chat is a body for a model.
func chat(model, text string, more ...string) string {
	quoted, _ := json.Marshal(text)
	members := append([]string{fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]`, model, quoted)}, more...)
	return strings.Join(members, ",") + "}"
}

// post sends a body to an inference route and reads the answer to its end, or until stop says so.
func (c *caller) post(ctx context.Context, path, body string, stop func(events []string) bool) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	maps.Copy(request.Header, c.header)
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	a := &answer{status: response.StatusCode, header: response.Header}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		a.body, err = io.ReadAll(response.Body)
		a.done = err == nil
		return a, err
	}
	reader := bufio.NewReader(response.Body)
	for {
		line, err := reader.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("data: ")); ok {
			a.events = append(a.events, string(data))
			if a.done = string(data) == "[DONE]"; a.done {
				_, _ = io.Copy(io.Discard, reader)
				return a, nil
			}
			if stop != nil && stop(a.events) {
				return a, nil
			}
		}
		if err != nil {
			return a, nil // the caller checks done: a stream that breaks off is no error here
		}
	}
}

// must is post for a chat request that must be answered by a server that serves, with any status.
func (c *caller) must(t *testing.T, body string) (a *answer) {
	t.Helper()
	untilServing(t, func() (int, []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		var err error
		if a, err = c.post(ctx, "/v1/chat/completions", body, nil); err != nil {
			t.Fatal(err)
		}
		return a.status, a.body
	})
	return a
}

// untilServing sends a request again while the server refuses every request because it has no lease.
func untilServing(t *testing.T, send func() (status int, body []byte)) {
	t.Helper()
	eventually(t, "the server has its lease again", func() bool { return !refusedByLease(send()) })
}

// refusedByLease reports whether a server refused a request because it has lost its lease on the database, or has not
// caught up since. A busy machine may cause that. A full drill runs on a quiet machine, where it is a fault.
func refusedByLease(status int, body []byte) bool {
	return !measured() && status == http.StatusServiceUnavailable && bytes.Contains(body, []byte("not serving: "))
}

type balance struct {
	Balance money.Nano `json:"balance_usd"`
	Held    money.Nano `json:"held_usd"`
	Spent   money.Nano `json:"spent_usd"`

	Abandoned money.Nano `json:"abandoned_unpaid_usd"`
}

func (p instance) wallet(t *testing.T, workspace string) balance {
	t.Helper()
	var b balance
	p.read(t, &b, "/admin/wallet?workspace="+workspace, "wallet", "show", "--workspace", workspace, "--json")
	return b
}

type usageRow struct {
	RequestID string     `json:"request_id"`
	KeyID     string     `json:"key_id"`
	Model     string     `json:"model"`
	Outcome   string     `json:"outcome"`
	Counted   bool       `json:"counted"`
	Input     int64      `json:"input_tokens"`
	Output    int64      `json:"output_tokens"`
	Cost      money.Nano `json:"cost_usd"`
	Charged   money.Nano `json:"charged_usd"`
}

// usage reads every usage row of a workspace, by request.
func (p instance) usage(t *testing.T, workspace string) map[string]usageRow {
	t.Helper()
	all, twice := p.usageRows(t, workspace)
	// A row that is written meanwhile moves another one to the next page. A second charge is there every time.
	for tries := 0; twice != "" && tries < 20; tries++ {
		all, twice = p.usageRows(t, workspace)
	}
	if twice != "" {
		t.Errorf("%s is charged twice", twice)
	}
	return all
}

// usageRows reads every usage row of a workspace, and one that it has seen twice.
func (p instance) usageRows(t *testing.T, workspace string) (all map[string]usageRow, twice string) {
	t.Helper()
	all = map[string]usageRow{}
	for offset := 0; ; offset += 1000 {
		var page struct {
			Data    []usageRow
			HasMore bool `json:"has_more"`
		}
		p.read(t, &page, fmt.Sprintf("/admin/usage?workspace=%s&limit=1000&offset=%d", workspace, offset),
			"usage", "--workspace", workspace, "--limit", "1000", "--offset", strconv.Itoa(offset), "--json")
		for _, row := range page.Data {
			if _, found := all[row.RequestID]; found {
				twice = row.RequestID
			}
			all[row.RequestID] = row
		}
		if !page.HasMore {
			return all, twice
		}
	}
}

// newWorkspace makes a workspace with that much money, and returns its key.
func (p instance) newWorkspace(t *testing.T, name string, credit money.Nano) string {
	t.Helper()
	var made struct {
		APIKey string `json:"api_key"`
	}
	p.mustAdmin(t, &made, "bootstrap", "--workspace", name, "--email", name+"@example.test", "--balance-usd", credit.String(), "--json")
	return made.APIKey
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// A seen is a request as the provider recorded it.
type seen struct {
	At          time.Time
	Header      http.Header
	Body        string
	Status      int
	Finished    bool
	CancelledAt *time.Time `json:"cancelled_at"`
	ChunksSent  int        `json:"chunks_sent"`
}

// seenBy lists the requests that a provider got and whose body holds a text.
func seenBy(t *testing.T, provider, text string) []seen {
	t.Helper()
	response, err := http.Get(provider + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var all, some []seen
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if strings.Contains(s.Body, text) {
			some = append(some, s)
		}
	}
	return some
}
