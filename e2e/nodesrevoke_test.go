package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// A withdrawal takes a right away, and the nodes are asked for it all the while.
type withdrawal struct {
	what     string
	key      string
	withdraw func(*http.Client) (int, string, error) // through a node's admin socket
	ask      func(ctx context.Context, at *caller) (status int, err error)
	refusal  int
}

// revoked is a key that asks a model, and is revoked.
func (f *nodes) revoked(t *testing.T) withdrawal {
	t.Helper()
	var made struct {
		ID     string
		APIKey string `json:"api_key"`
	}
	f.change(t, http.MethodPost, "/admin/keys", `{"workspace":"many","email":"many@example.test","name":"drill"}`, http.StatusCreated, &made)
	return withdrawal{
		what: "revoke", key: made.APIKey, refusal: http.StatusUnauthorized,
		withdraw: func(socket *http.Client) (int, string, error) {
			return post(socket, "/admin/keys/"+url.PathEscape(made.ID)+"/revocation?workspace=many", "")
		},
		ask: func(ctx context.Context, at *caller) (int, error) {
			a, err := at.post(ctx, "/v1/chat/completions", chat("mock/whole", "revoked", `"max_tokens":20`), nil)
			if err != nil {
				return 0, err
			}
			return a.status, nil
		},
	}
}

// demoted is an admin's key that reads what only admins may, and whose owner becomes a member.
func (f *nodes) demoted(t *testing.T, i int) withdrawal {
	t.Helper()
	email := fmt.Sprintf("admin-%d@example.test", i)
	var made struct {
		APIKey string `json:"api_key"`
	}
	f.change(t, http.MethodPost, "/admin/members", fmt.Sprintf(`{"workspace":"many","email":%q,"role":"admin"}`, email), http.StatusCreated, nil)
	f.change(t, http.MethodPost, "/admin/keys", fmt.Sprintf(`{"workspace":"many","email":%q,"name":"drill"}`, email), http.StatusCreated, &made)
	return withdrawal{
		what: "demote", key: made.APIKey, refusal: http.StatusForbidden,
		withdraw: func(socket *http.Client) (int, string, error) {
			return send(socket, http.MethodPut, "/admin/members", fmt.Sprintf(`{"workspace":"many","email":%q,"role":"member"}`, email))
		},
		ask: func(ctx context.Context, at *caller) (int, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.address+"/v1/model-versions", http.NoBody)
			if err != nil {
				return 0, err
			}
			request.Header.Set("Authorization", "Bearer "+at.key)
			response, err := at.client.Do(request)
			if err != nil {
				return 0, err
			}
			defer func() { _ = response.Body.Close() }()
			_, err = io.Copy(io.Discard, response.Body)
			return response.StatusCode, err
		},
	}
}

// send sends a request to an admin socket.
func send(client *http.Client, method, path, body string) (int, string, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, "http://admin"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// held counts what the callers of a withdrawal got.
type held struct {
	accepted  []atomic.Int64 // by node, before
	refused   []atomic.Int64 // by node, afterwards
	withdrawn atomic.Bool    // it was answered
}

// askAll asks every node with two connections each until ctx ends. What starts after the withdrawal was answered must
// be refused.
func (w *withdrawal) askAll(ctx context.Context, t *testing.T, f *nodes, got *held) *sync.WaitGroup {
	t.Helper()
	var group sync.WaitGroup
	for i := range 2 * len(f.all) {
		n := i % len(f.all)
		at := f.all[n].caller(w.key)
		group.Go(func() {
			defer at.client.CloseIdleConnections()
			for ctx.Err() == nil {
				after := got.withdrawn.Load()
				status, err := w.ask(ctx, at)
				switch {
				case err != nil:
				case status/100 == 2 && after:
					t.Errorf("%s: a request to %s that began after the answer got %d", w.what, f.all[n].name, status)
					return
				case status/100 == 2:
					got.accepted[n].Add(1)
				case status == w.refusal:
					got.refused[n].Add(1)
				case status != http.StatusServiceUnavailable:
					t.Errorf("%s: %s answered %d", w.what, f.all[n].name, status)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return &group
}

// disturbances of one node, without its end. Each returns what undoes it.
var disturbances = []func(n *node) func(){
	func(n *node) func() { n.pause(); return n.resume },
	func(n *node) func() { n.link.cut(); return n.link.mend },
	func(n *node) func() { n.link.stall(requests, answers); return n.link.mend },
	func(n *node) func() { n.link.stall(answers); return func() { n.link.lose(); n.link.mend() } },
	func(n *node) func() { n.link.stall(requests); return n.link.mend },
}

// round takes a right away through one node while another one may be disturbed, and returns how long the answer took.
func (f *nodes) round(t *testing.T, w withdrawal, disturbed bool) time.Duration {
	t.Helper()
	got := &held{accepted: make([]atomic.Int64, len(f.all)), refused: make([]atomic.Int64, len(f.all))}
	ctx, stop := context.WithCancel(t.Context())
	group := w.askAll(ctx, t, f, got)
	defer group.Wait()
	defer stop()
	everywhere := func(counts []atomic.Int64) func() bool {
		return func() bool {
			for i := range counts {
				if counts[i].Load() == 0 {
					return t.Failed()
				}
			}
			return true
		}
	}
	eventually(t, w.what+": all nodes accept it", everywhere(got.accepted))
	through := rand.IntN(len(f.all))
	undo := func() {}
	if disturbed {
		other := f.all[(through+1+rand.IntN(len(f.all)-1))%len(f.all)]
		undo = disturbances[rand.IntN(len(disturbances))](other)
		time.Sleep(rand.N(600 * time.Millisecond))
	}
	socket := f.all[through].socket()
	defer socket.CloseIdleConnections()
	began := time.Now()
	code, text, err := w.withdraw(socket)
	took := time.Since(began)
	got.withdrawn.Store(true)
	if err != nil || code != http.StatusOK {
		t.Errorf("%s through %s: %d %s %v", w.what, f.all[through].name, code, text, err)
	}
	if disturbed {
		time.Sleep(rand.N(1500 * time.Millisecond))
	}
	undo()
	eventually(t, w.what+": all nodes refuse it", everywhere(got.refused))
	return took
}

// change calls an admin route of any node.
func (f *nodes) change(t *testing.T, method, path, body string, want int, out any) {
	t.Helper()
	socket := f.all[rand.IntN(len(f.all))].socket()
	defer socket.CloseIdleConnections()
	code, text, err := send(socket, method, path, body)
	if err != nil || code != want {
		t.Fatalf("%s %s: %d %s %v", method, path, code, text, err)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatalf("%s %s: %v in %q", method, path, err, text)
	}
}

// Keys are revoked and admins demoted under load, while a node is paused or partitioned in every third round or more:
// no request that starts after the answer is accepted by any node.
func TestDrillManyNodesRefuseWhatWasTakenAwayWhenItIsAnswered(t *testing.T) {
	t.Parallel()
	f := startNodes(t, 3, drillModels())
	f.logsWhenFailed(t)
	f.all[0].newWorkspace(t, "many", 1000*money.Dollar)
	var calm, disturbed []time.Duration
	for i := range drills(12, 300) {
		w := f.revoked
		if i%2 == 1 {
			w = func(t *testing.T) withdrawal { return f.demoted(t, i) }
		}
		if i%3 == 2 || measured() && i%2 == 0 {
			disturbed = append(disturbed, f.round(t, w(t), true))
			for _, one := range f.all {
				one.ready(t)
			}
		} else {
			calm = append(calm, f.round(t, w(t), false))
		}
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	for what, all := range map[string][]time.Duration{"undisturbed": calm, "with a node disturbed": disturbed} {
		slices.Sort(all)
		t.Logf("%s: %d answers, p50 %v, p99 %v, longest %v", what, len(all), quantile(all, 0.5), quantile(all, 0.99), all[len(all)-1])
	}
	f.stop(t)
	f.all[0].verifyLedger(t)
	f.all[0].verifyTrail(t)
	f.uncomplaining(t)
}

func quantile(sorted []time.Duration, share float64) time.Duration {
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))].Round(100 * time.Microsecond)
}
