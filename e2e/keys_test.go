package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// setKey sets a workspace's own key as the operator.
func (p instance) setKey(t *testing.T, workspace, provider, key string, more ...string) (stderr string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	writeFile(t, file, key+"\n")
	_, stderr, code = p.admin(t, append([]string{"provider-key", "set", "--workspace", workspace, "--provider", provider, "--key-file", file}, more...)...)
	return stderr, code
}

// keyEcho is a provider that accepts any key and answers with the key of the request.
func keyEcho(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":1000}}`, key)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// keyConfig writes a configuration with a provider at that URL, the server's own key for it, and a model.
func keyConfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sovereign.yaml")
	writeFile(t, path, fmt.Sprintf("providers:\n  - {name: up, kind: openai, base_url: %q, api_key: servers, transport: %s}\n", url, transport())+
		"models:\n  - {id: up/m, provider: up, context_window: 10000, max_output_tokens: 1000, price: {input_per_mtok_usd: 1, output_per_mtok_usd: 1}}\n"+
		"  - {id: anthropic/mock, provider: anthropic, context_window: 10000, max_output_tokens: 1000, price: {input_per_mtok_usd: 1, output_per_mtok_usd: 1}}\n")
	return path
}

// saidBy is the text of an answer.
func saidBy(t *testing.T, a *answer) string {
	t.Helper()
	var body struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(a.body, &body); a.status != 200 || err != nil || len(body.Choices) != 1 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return body.Choices[0].Message.Content
}

func TestAnOwnKeyIsUsedAloneAndCostsNothing(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		s := p.serve(t, "--config", keyConfig(t, keyEcho(t)))
		poor, rich := s.callerWith(p.newWorkspace(t, "poor", 1)), s.caller()
		body := chat("up/m", "hi")
		if a := poor.must(t, body); a.status != 402 {
			t.Fatalf("without a key of its own: %d %s", a.status, a.body)
		}
		if errors, code := p.setKey(t, "poor", "up", "own-1"); code != 0 {
			t.Fatal(errors)
		}
		if got := saidBy(t, poor.must(t, body)); got != "own-1" {
			t.Errorf("the provider was sent %q", got)
		}
		if got := saidBy(t, rich.must(t, body)); got != "servers" {
			t.Errorf("for another workspace the provider was sent %q", got)
		}
		eventually(t, "the usage row", func() bool { return len(p.usage(t, "poor")) == 1 })
		for _, row := range p.usage(t, "poor") {
			if row.Charged != 0 || row.Cost != 0 || row.Input != 1000 {
				t.Errorf("%+v", row)
			}
		}
		// It survives a new root key, a restart, and a restart with another's row in its place.
		p.mustAdmin(t, nil, "rotate-root-key")
		s.kill()
		s = p.serve(t, "--config", keyConfig(t, keyEcho(t)))
		poor.address = s.address()
		if got := saidBy(t, poor.must(t, body)); got != "own-1" {
			t.Errorf("after a restart the provider was sent %q", got)
		}
		p.mustAdmin(t, nil, "provider-key", "delete", "--workspace", "poor", "--provider", "up")
		if a := poor.must(t, body); a.status != 402 {
			t.Errorf("after its deletion: %d %s", a.status, a.body)
		}
		p.verifyLedger(t)
	})
}

// Under load, every request that begins after a rotation has answered uses the new key, and none fails.
func TestAKeyIsRotatedWithoutDowntime(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	s := p.serve(t, "--config", keyConfig(t, keyEcho(t)))
	key := s.callerWith(p.newWorkspace(t, "busy", 1))
	if errors, code := p.setKey(t, "busy", "up", "own-0"); code != 0 {
		t.Fatal(errors)
	}
	var current, served atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				least := current.Load()
				a, err := key.post(t.Context(), "/v1/chat/completions", chat("up/m", "hi"), nil)
				if err != nil || a.status != 200 {
					t.Errorf("%v %+v", err, a)
					return
				}
				var used int64
				_, after, _ := strings.Cut(string(a.body), "own-")
				if _, err := fmt.Sscanf(after, "%d", &used); err != nil || used < least {
					t.Errorf("a request that began with key %d was sent with %d", least, used)
				}
				served.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for n := int64(1); n <= 20; n++ {
		if errors, code := p.setKey(t, "busy", "up", fmt.Sprintf("own-%d", n)); code != 0 {
			t.Error(errors)
		}
		current.Store(n)
	}
	stop()
	group.Wait()
	if served.Load() < 100 {
		t.Errorf("only %d requests were served", served.Load())
	}
	p.verifyLedger(t)
}

// A customer's URL reaches only addresses that the operator allows, however they are spelled.
func TestACustomersURLIsGuarded(t *testing.T) {
	t.Parallel()
	mock := startProvider(t)
	url := mock + "/anthropic/v1"
	body := chat("anthropic/mock", "hi")
	p := newInstance(t, secret.Text{})
	s := p.serve(t, "--config", keyConfig(t, mock))
	caller := s.callerWith(p.newWorkspace(t, "bold", money.Dollar)) // nothing of it is spent: an own key costs nothing
	if a := caller.must(t, body); a.status != 400 || a.code() != "unknown_provider" {
		t.Errorf("a provider that nobody has configured: %d %s", a.status, a.body)
	}
	port := url[strings.LastIndex(url, ":"):]
	for _, at := range []string{url, "http://0.0.0.0" + port, "http://[::1]" + port, "http://[::ffff:127.0.0.1]" + port, "http://2130706433" + port, "http://169.254.169.254/v1", "file:///etc/passwd"} {
		if errors, code := p.setKey(t, "bold", "anthropic", "provider-secret", "--base-url", at); code == 0 || !strings.Contains(errors, "base_url") {
			t.Errorf("%s is kept: %s", at, errors)
		}
	}
	// A name is checked when it is dialled.
	redirecting := httptest.NewServer(http.RedirectHandler(url+"/messages", http.StatusTemporaryRedirect))
	defer redirecting.Close()
	if errors, code := p.setKey(t, "bold", "anthropic", "provider-secret", "--base-url", "http://localhost"+port); code == 0 {
		if a := caller.must(t, body); a.status != 400 || a.code() != "unknown_provider" || strings.Contains(string(a.body), "127.0.0.1") {
			t.Errorf("a name of ours: %d %s", a.status, a.body)
		}
	} else if !strings.Contains(errors, "base_url") {
		t.Error(errors)
	}
	if got := seenBy(t, mock, ""); len(got) != 0 {
		t.Errorf("the provider was reached: %+v", got)
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("stopped with %d", code)
	}

	s = p.serve(t, "--config", keyConfig(t, mock), "--guard-allow", "127.0.0.0/8")
	caller.address = s.address()
	if errors, code := p.setKey(t, "bold", "anthropic", "provider-secret", "--base-url", url); code != 0 {
		t.Fatal(errors)
	}
	if got := saidBy(t, caller.must(t, body)); got == "" {
		t.Error("nothing was said")
	}
	if got := seenBy(t, mock, ""); len(got) != 1 || got[0].Header.Get("X-Api-Key") != "provider-secret" {
		t.Errorf("%+v", got)
	}
	// A redirect is returned as an answer and not followed: the key is sent nowhere else.
	if errors, code := p.setKey(t, "bold", "anthropic", "provider-secret", "--base-url", redirecting.URL); code != 0 {
		t.Fatal(errors)
	}
	if a := caller.must(t, body); a.status != 502 || len(seenBy(t, mock, "")) != 1 {
		t.Errorf("a redirect was followed: %d %s", a.status, a.body)
	}
	p.verifyLedger(t)
}

func TestAnswersAreRememberedForWorkspacesThatWantIt(t *testing.T) {
	t.Parallel()
	s, provider := serveMock(t, map[string]string{"chat": "mock?chunks=5", "embedding": "mock"})
	c := s.caller()
	ask := func(want string) *answer {
		t.Helper()
		a := c.must(t, chat("mock/chat", "remember this"))
		if a.status != 200 || a.header.Get("X-Service-Cache") != want {
			t.Fatalf("%d %v, want %q", a.status, a.header, want)
		}
		return a
	}
	ask("")
	s.mustAdmin(t, nil, "cache", "on", "--workspace", "default")
	first := ask("miss")
	spent := s.wallet(t, "default").Spent
	if again := ask("hit"); string(again.body) != string(first.body) || again.header.Get("X-Service-Served-Model") != "mock/chat" {
		t.Errorf("%s", again.body)
	}
	streamed := c.must(t, chat("mock/chat", "remember this", `"stream":true`))
	if !streamed.done || streamed.header.Get("X-Service-Cache") != "hit" || len(streamed.events) < 3 {
		t.Errorf("%v %q", streamed.header, streamed.events)
	}
	for _, want := range []string{"miss", "hit"} {
		a, err := c.post(t.Context(), "/v1/embeddings", `{"model":"mock/embedding","input":"remember this"}`, nil)
		if err != nil || a.header.Get("X-Service-Cache") != want {
			t.Errorf("%v %v, want %s", err, a.header, want)
		}
	}
	if now := s.wallet(t, "default").Spent; now-spent > 100_000 {
		t.Errorf("hits cost $%s", now-spent)
	}
	s.mustAdmin(t, nil, "cache", "off", "--workspace", "default")
	ask("")
	if got := seenBy(t, provider, "remember this"); len(got) != 4 {
		t.Errorf("the provider was asked %d times", len(got))
	}
	s.verifyLedger(t)
}

func TestAFailingModelIsLeftAloneAndItsFallbackAnswersAtOnce(t *testing.T) {
	t.Parallel()
	s, provider := serveMock(t, map[string]string{"down": "mock?status=503", "chat": "mock?chunks=5"}, "--limits-breaker-failures", "4", "--limits-breaker-pause", "1h", "--limits-retries", "0")
	c := s.caller()
	for range 10 {
		if a := c.must(t, chat("mock/down", "anybody")); a.status != 502 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if got := seenBy(t, provider, "anybody"); len(got) != 4 {
		t.Errorf("it was asked %d times", len(got))
	}
	if a := c.must(t, chat("mock/down", "somebody", `"models":["mock/chat"]`)); a.status != 200 || a.header.Get("X-Service-Served-Model") != "mock/chat" || len(seenBy(t, provider, "somebody")) != 1 {
		t.Errorf("%d %v", a.status, a.header)
	}
}

// A parameter that a wire cannot express is refused by name before anything is sent, and a fallback that cannot express
// it is skipped.
func TestWhatAWireCannotExpressIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	s, _, provider := wires(t, map[string]string{"claude/chat": "mock?chunks=5", "gemini/chat": "mock?chunks=5", "mock/chat": "mock?chunks=5", "mock/down": "mock?status=503"}, "--limits-retries", "0")
	c := s.caller()
	a := c.must(t, chat("claude/chat", "bias me", `"logit_bias":{"5":1}`))
	var envelope struct{ Error struct{ Code, Param string } }
	if err := json.Unmarshal(a.body, &envelope); a.status != 400 || err != nil || envelope.Error.Code != "unsupported_parameter" || envelope.Error.Param != "logit_bias" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := seenBy(t, provider, "bias me"); len(got) != 0 {
		t.Errorf("%d requests were sent", len(got))
	}
	a = c.must(t, chat("mock/down", "bias me too", `"logit_bias":{"5":1},"models":["claude/chat","gemini/chat","mock/chat"]`))
	if a.status != 200 || a.header.Get("X-Service-Served-Model") != "mock/chat" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if got := seenBy(t, provider, "bias me too"); len(got) != 2 {
		t.Errorf("%d requests were sent", len(got))
	}
}

func TestAHangupChangesWhatOwnKeysCost(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	config := keyConfig(t, keyEcho(t))
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	s := p.serve(t, "--config", config)
	c := s.callerWith(p.newWorkspace(t, "moved", money.Dollar))
	if errors, code := p.setKey(t, "moved", "up", "own-1"); code != 0 {
		t.Fatal(errors)
	}
	c.must(t, chat("up/m", "hi"))
	writeFile(t, config, string(text)+"own_key_fee_percent: 50\n")
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "reloaded")
	id := c.must(t, chat("up/m", "hi")).id()
	eventually(t, "the usage rows", func() bool { return len(p.usage(t, "moved")) == 2 })
	for request, row := range p.usage(t, "moved") {
		if want := money.Dollar / 1000; (request == id) != (row.Charged == want) || request != id && row.Charged != 0 {
			t.Errorf("%s cost $%s", request, row.Charged)
		}
	}
}
