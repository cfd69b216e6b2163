package evalendpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/evalendpoint"
	"sovereign/internal/net/netguard"
	"sovereign/internal/net/netguard/netguardtest"
	"sovereign/internal/store/db"
	"sovereign/internal/wire/chat"
)

const (
	ask    = `{"messages":[{"role":"user","content":"hi"}],"model":"endpoint/x","max_tokens":5}`
	answer = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
)

func says(text string) string { return fmt.Sprintf(answer, text) }

// serve starts a server, and returns an endpoint that is at its URL. The server reads a request before it calls h: only
// then does net/http notice that the client has left.
func (r fixture) serve(t *testing.T, h http.HandlerFunc) evalendpoint.EvalEndpoint {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		q.Body = io.NopCloser(bytes.NewReader(body))
		h(w, q)
	}))
	t.Cleanup(server.Close)
	return r.put(t, evalendpoint.New{Name: "ours", BaseURL: server.URL + "/v1", Model: `their "m"`, APIKey: key(canary)})
}

func reply(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

// transient reports whether an error says that another call may succeed.
func transient(err error) bool {
	var f *fault.Fault
	return errors.As(err, &f) && slices.Contains([]fault.Kind{fault.Upstream, fault.Timeout, fault.RateLimited}, f.Kind)
}

func (r fixture) call(t *testing.T, at evalendpoint.EvalEndpoint) (evalendpoint.Answer, error) {
	t.Helper()
	return r.client.Complete(t.Context(), mine, at.ID, []byte(ask))
}

func TestAnEndpointIsCalledWithItsKeyAndItsModel(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		type seen struct{ method, path, key, contentType, body string }
		asked := make(chan seen, 1)
		at := r.serve(t, func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			asked <- seen{q.Method, q.URL.Path, q.Header.Get("Authorization"), q.Header.Get("Content-Type"), string(body)}
			reply("application/json; charset=utf-8", says("hello"))(w, q)
		})
		got, err := r.call(t, at)
		if err != nil {
			t.Fatal(err)
		}
		want := seen{"POST", "/v1/chat/completions", "Bearer " + canary, "application/json", strings.Replace(ask, `"endpoint/x"`, `"their \"m\""`, 1)}
		if sent := <-asked; sent != want {
			t.Errorf("sent\n%+v, want\n%+v", sent, want)
		}
		var read chat.Answer
		if err := json.Unmarshal(got.Body, &read); err != nil || *read.Choices[0].Message.Content != "hello" || read.Usage.CompletionTokens != 2 || got.Latency <= 0 {
			t.Errorf("%s after %v: %v", got.Body, got.Latency, err)
		}
	})
}

// Each is a server that does not do what it should. The error says so, once, without its key, and tells whether another
// call may help.
func TestALyingEndpointIsAnErrorOfItsOwn(t *testing.T) {
	hang := func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}
	status := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	type liar struct {
		serve     http.HandlerFunc
		transient bool
		says      string
	}
	liars := map[string]liar{
		"never answers": {hang, true, "did not answer in time"},
		"stops in the middle of its answer": {func(w http.ResponseWriter, q *http.Request) {
			reply("application/json", `{"id":`)(w, q)
			_ = http.NewResponseController(w).Flush()
			hang(w, q)
		}, true, "did not answer in time"},
		"ends in the middle of its answer": {raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), true, "broke off"},
		"does not speak HTTP":              {raw("SSH-2.0-" + canary + "\r\n"), true, "broke off"},
		"answers without an end": {func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for q.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, false, "more than 4 MiB"},
		"sends a header without an end": {raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), true, "broke off"},
		"answers with a page":           {reply("text/html", "<html>hello"), false, "application/json"},
		"answers with a stream":         {reply("text/event-stream", "data: {}\n\n"), false, "application/json"},
		"has no content type": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, says("x"))
		}, false, "application/json"},
		"answers compressed": {func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			reply("application/json", says("x"))(w, q)
		}, false, "application/json"},
		"answers nothing":               {reply("application/json", ""), false, "chat completion"},
		"answers null":                  {reply("application/json", "null"), false, "chat completion"},
		"answers something else":        {reply("application/json", `{"text":"hello"}`), false, "chat completion"},
		"answers without choices":       {reply("application/json", `{"choices":[]}`), false, "chat completion"},
		"answers twice":                 {reply("application/json", says("x")+says("y")), false, "chat completion"},
		"names a member twice":          {reply("application/json", `{"choices":[],`+says("x")[1:]), false, "chat completion"},
		"answers as another role":       {reply("application/json", strings.Replace(says("x"), "assistant", "system", 1)), false, "assistant"},
		"answers in broken UTF-8":       {reply("application/json", says("\xff")), false, "chat completion"},
		"answers with a content list":   {reply("application/json", strings.Replace(says("x"), `"x"`, `[{"type":"text"}]`, 1)), false, "chat completion"},
		"answers with depth":            {reply("application/json", strings.Repeat(`{"a":`, 1<<19)), false, "chat completion"},
		"has an error for an answer":    {reply("application/json", `{"error":{"message":"overloaded, `+canary+`"}}`), true, "answered with an error: overloaded"},
		"has a final one for an answer": {reply("application/json", `{"error":{"message":"too long","type":"invalid_request_error"}}`), false, "too long"},
		"refuses":                       {status(400, `{"error":{"message":"bad"}}`), false, "answered 400: bad"},
		"quotes its key":                {status(401, `{"error":{"message":"Incorrect key sk-canary-01***789, or `+canary+`"}}`), false, "answered 401: Incorrect key [redacted]"},
		"is not there":                  {status(404, "not found"), false, "answered 404"},
		"is busy":                       {status(429, ""), true, "answered 429"},
		"fails":                         {status(500, `{"error":"`+canary+`"}`), true, "answered 500"},
		"fails at length":               {status(503, strings.Repeat("x", 1<<20)), true, "answered 503"},
	}
	eachStorage(t, func(t *testing.T, r fixture) {
		for name, l := range liars {
			t.Run(name, func(t *testing.T) {
				var calls atomic.Int64
				at := r.serve(t, func(w http.ResponseWriter, q *http.Request) {
					calls.Add(1)
					l.serve(w, q)
				})
				r.client.SetTimeout(time.Minute)
				if strings.Contains(l.says, "in time") {
					r.client.SetTimeout(time.Second / 10)
				}
				_, err := r.call(t, at)
				var f *fault.Fault
				if !errors.As(err, &f) || !strings.Contains(f.Message, l.says) || !strings.HasPrefix(f.Message, `the endpoint "ours" `) {
					t.Fatalf("%v, want an error that says %q", err, l.says)
				}
				if transient(err) != l.transient || !l.transient && f.Status != http.StatusBadRequest || len(f.Message) > 2000 || calls.Load() != 1 {
					t.Errorf("transient: %v, %d calls, %d bytes: %v", transient(err), calls.Load(), len(f.Message), err)
				}
				if text := err.Error() + fmt.Sprintf("%+v", f); strings.Contains(text, "canary") {
					t.Errorf("the key is in %s", text)
				}
			})
		}
	})
}

// Whatever an answer holds, it does not hold the key, and no other word is taken from it.
func TestAnAnswerHoldsNotTheKey(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		var escaped strings.Builder
		for _, c := range canary {
			fmt.Fprintf(&escaped, `\u%04x`, c)
		}
		at := r.serve(t, reply("application/json", says(`1 `+canary+` 2 `+escaped.String()+` 3 0123456 \"q\"`)))
		got, err := r.call(t, at)
		if err != nil {
			t.Fatal(err)
		}
		var read chat.Answer
		if err := json.Unmarshal(got.Body, &read); err != nil || *read.Choices[0].Message.Content != `1 [redacted] 2 [redacted] 3 0123456 "q"` {
			t.Errorf("%s: %v", got.Body, err)
		}
	})
}

// A redirect is not followed, wherever it leads: the request would go to a server that nobody registered.
func TestARedirectIsNotFollowed(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		var reached atomic.Int64
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			reached.Add(1)
			reply("application/json", says("private"))(w, q)
		}))
		t.Cleanup(elsewhere.Close)
		for _, status := range []int{301, 302, 303, 307, 308} {
			for _, to := range []string{elsewhere.URL, strings.Replace(elsewhere.URL, "127.0.0.1", "127.0.0.2", 1), "http://169.254.169.254/", "/v1/other"} {
				at := r.serve(t, func(w http.ResponseWriter, q *http.Request) {
					if q.URL.Path != "/v1/chat/completions" {
						reached.Add(1)
					}
					http.Redirect(w, q, to, status)
				})
				if got, err := r.call(t, at); err == nil || transient(err) || !strings.Contains(err.Error(), "no redirect is followed") {
					t.Errorf("%d to %s: %s %v", status, to, got.Body, err)
				}
			}
		}
		if reached.Load() != 0 {
			t.Errorf("%d redirects were followed", reached.Load())
		}
	})
}

// The name leads to an address that is allowed when the endpoint is made and first called, and then to one that is not.
func TestANameThatIsReboundReachesNothingPrivate(t *testing.T) {
	var reached atomic.Int64
	listen := func(address string) net.Listener {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	public := listen("127.0.0.1:0")
	_, port, _ := net.SplitHostPort(public.Addr().String())
	private := listen("127.0.0.2:" + port)
	outside := &http.Server{Handler: reply("application/json", says("public"))}
	inside := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) })}
	for server, on := range map[*http.Server]net.Listener{outside: public, inside: private} {
		go func() { _ = server.Serve(on) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	outside.SetKeepAlivesEnabled(false)
	zone := netguardtest.NewZone(t, map[string][][]netip.Addr{
		"first.test": {netguardtest.Answers("127.0.0.1"), netguardtest.Answers("127.0.0.2")},
		"other.test": {netguardtest.Answers("127.0.0.1"), netguardtest.Answers("127.0.0.2")},
	})
	names := []string{"first.test", "other.test"} // one for each storage: a zone remembers what it has answered
	eachStorage(t, func(t *testing.T, r fixture) {
		name := names[0]
		names = names[1:]
		at := r.put(t, evalendpoint.New{Name: "ours", BaseURL: "http://" + name + ":" + port, Model: "m", APIKey: key(canary)})
		if got, err := r.call(t, at); err != nil || string(got.Body) != says("public") {
			t.Fatalf("%s %v", got.Body, err)
		}
		_, err := r.call(t, at)
		if err == nil || !strings.Contains(fault.From(err).Message, name+" is not a public address") || strings.Contains(fault.From(err).Message, "127") {
			t.Errorf("rebound: %v", err)
		}
		unknown := r.put(t, evalendpoint.New{Name: "ours", BaseURL: "http://unknown.test:" + port, Model: "m", APIKey: key(canary)})
		_, nowhere := r.call(t, unknown)
		if alike := strings.Replace(fault.From(err).Message, name, "unknown.test", 1); nowhere == nil || fault.From(nowhere).Message != alike || transient(err) != transient(nowhere) {
			t.Errorf("a private name and an unknown one differ: %v, %v", err, nowhere)
		}
	}, netguard.WithResolver(zone.Resolver()))
	if reached.Load() != 0 {
		t.Errorf("the private address was reached %d times", reached.Load())
	}
}

func TestAnEndpointThatIsDeletedOrWasCopiedIsNotCalled(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		var calls atomic.Int64
		at := r.serve(t, func(w http.ResponseWriter, q *http.Request) {
			calls.Add(1)
			reply("application/json", says("x"))(w, q)
		})
		for name, change := range map[string]string{
			"another URL":       `UPDATE eval_endpoints SET base_url = base_url || '/x'`,
			"another endpoint":  `UPDATE eval_endpoints SET id = 'ep_other'`,
			"another workspace": `UPDATE eval_endpoints SET workspace_id = 'ws_theirs'`,
		} {
			if _, err := db.Exec(t.Context(), r.db.Across("test"), `DELETE FROM eval_endpoints`); err != nil {
				t.Fatal(err)
			}
			at = r.put(t, evalendpoint.New{Name: "ours", BaseURL: at.BaseURL, Model: "m", APIKey: key(canary)})
			if _, err := db.Exec(t.Context(), r.db.Across("test"), change); err != nil {
				t.Fatal(err)
			}
			id, ws := at.ID, mine
			switch name {
			case "another endpoint":
				id = "ep_other"
			case "another workspace":
				ws = theirs
			}
			if _, err := r.client.Complete(t.Context(), ws, id, []byte(ask)); fault.From(err).Kind != fault.UnknownProvider || !strings.Contains(err.Error(), "cannot be read") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := db.Exec(t.Context(), r.db.Across("test"), `DELETE FROM eval_endpoints`); err != nil {
			t.Fatal(err)
		}
		at = r.put(t, evalendpoint.New{Name: "ours", BaseURL: at.BaseURL, Model: "m"})
		if err := r.Delete(t.Context(), mine, ann, at.ID); err != nil {
			t.Fatal(err)
		}
		_, err := r.call(t, at)
		if f := fault.From(err); f.Kind != fault.Missing || f.Message != fmt.Sprintf("the endpoint %q was deleted", at.ID) {
			t.Errorf("deleted: %v", err)
		}
		if calls.Load() != 0 {
			t.Errorf("the server was called %d times", calls.Load())
		}
	})
}

// An operator who no longer allows a range ends the calls to endpoints that were registered before.
func TestAnAddressThatIsNoLongerAllowedIsNotCalled(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		var calls atomic.Int64
		at := r.serve(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
		strict := netguard.New(nil)
		_, err := evalendpoint.NewClient(evalendpoint.NewStore(r.db, r.vault, strict), strict).Complete(t.Context(), mine, at.ID, []byte(ask))
		if err == nil || fault.From(err).Kind != fault.UnknownProvider || !strings.Contains(err.Error(), "is not a public address") || calls.Load() != 0 {
			t.Errorf("%v after %d calls", err, calls.Load())
		}
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		at := r.serve(t, func(_ http.ResponseWriter, q *http.Request) {
			cancel(stopped)
			<-q.Context().Done()
		})
		if _, err := r.client.Complete(ctx, mine, at.ID, []byte(ask)); !errors.Is(err, stopped) || transient(err) {
			t.Errorf("%v", err)
		}
	})
}

// A key that is refused is refused for every request: the eval must not go on and pay the other models.
func TestARefusedKeyIsNotAboutTheRequest(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		for status, want := range map[int]fault.Kind{401: fault.UnknownProvider, 403: fault.InvalidParameter} {
			at := r.serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			if _, err := r.call(t, at); fault.From(err).Kind != want {
				t.Errorf("%d: %v", status, err)
			}
		}
	})
}
