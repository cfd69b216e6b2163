package envtool

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

// A fixture is a store of tools, and a customer's environment that answers as it is told.
type fixture struct {
	*Store
	server *httptest.Server
	answer http.HandlerFunc
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := vault.Open(t.Context(), d, root)
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{}
		f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.answer(w, r) }))
		t.Cleanup(f.server.Close)
		roots := x509.NewCertPool()
		roots.AddCert(f.server.Certificate())
		guard := netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, netguard.WithRoots(roots))
		t.Cleanup(guard.Close)
		f.Store = NewStore(d, v, guard)
		test(t, f)
	})
}

func (f *fixture) tool(t *testing.T, timeout int64) Tool {
	t.Helper()
	key := secret.New("0123456789abcdef")
	made, err := f.Create(t.Context(), dbtest.Mine, dbtest.Ann, Request{
		Name: "search", Description: "Searches", EndpointURL: f.server.URL + "/call", TimeoutMS: timeout, Secret: &key,
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (f *fixture) call(t *testing.T, at Tool) Result {
	t.Helper()
	got, err := f.Call(t.Context(), dbtest.Mine, at.ID, Call{
		Arguments: jsontext.Value(`{"q":"x"}`), RunID: "grpo_1", RolloutID: "r1", Step: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestACallIsSignedAndItsAnswerIsRead(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		at := f.tool(t, 10_000)
		f.answer = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			stamp := r.Header.Get(timestampHeader)
			want := "v1=" + hex.EncodeToString(sign(secret.New("0123456789abcdef"), stamp, body))
			if got := r.Header.Get(signatureHeader); got != want || stamp == "" {
				t.Errorf("signature %q, want %q", got, want)
			}
			if want := `{"tool":"search","arguments":{"q":"x"},"run_id":"grpo_1","rollout_id":"r1","step":3}`; string(body) != want {
				t.Errorf("body %s", body)
			}
			_, _ = io.WriteString(w, `{"content":"found","done":true,"reward":0.5}`)
		}
		if got := f.call(t, at); got.Content != "found" || !got.Done || got.Reward == nil || *got.Reward != 0.5 || got.Error != "" {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhatGoesWrongAtTheCustomersIsAResult(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		at := f.tool(t, 10_000)
		for want, answer := range map[string]http.HandlerFunc{
			"answered 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			"answered 302": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
			},
			"answered no JSON object with a text content": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"content":1}`) },
			"answered a reward that is out of range": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"content":"a","reward":1e300}`)
			},
			"answered more than 262144 bytes": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"content":%q}`, strings.Repeat("x", maxReply))
			},
		} {
			f.answer = answer
			if got := f.call(t, at); got.Error != want {
				t.Errorf("want %q, got %+v", want, got)
			}
		}
		release := make(chan struct{})
		f.answer = func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		if err := f.Delete(t.Context(), dbtest.Mine, dbtest.Ann, at.ID); err != nil {
			t.Fatal(err)
		}
		if got := f.call(t, f.tool(t, 100)); got.Error != "did not answer in 100ms" {
			t.Errorf("%+v", got)
		}
		close(release)
	})
}

func TestACallerThatLeavesEndsTheCall(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		at := f.tool(t, 30_000)
		called, ended := make(chan struct{}), make(chan struct{})
		f.answer = func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // so that the server sees the connection end
			close(called)
			<-r.Context().Done()
			close(ended)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { <-called; cancel() }()
		if _, err := f.Call(ctx, dbtest.Mine, at.ID, Call{Arguments: jsontext.Value("{}")}); err == nil {
			t.Error("it returned a result")
		}
		<-ended
	})
}

func TestAToolIsItsWorkspacesAlone(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		at := f.tool(t, 1000)
		_, err := f.Call(t.Context(), dbtest.Theirs, at.ID, Call{Arguments: jsontext.Value("{}")})
		if fault.From(err).Kind != fault.Missing {
			t.Error(err)
		}
		if err := f.Delete(t.Context(), dbtest.Theirs, dbtest.Ann, at.ID); fault.From(err).Kind != fault.Missing {
			t.Error(err)
		}
		if all, err := f.List(t.Context(), dbtest.Theirs, 10, 0); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
	})
}

func TestAToolIsCheckedByItsFields(t *testing.T) {
	guard := netguard.New(nil)
	defer guard.Close()
	short := secret.New("short")
	for want, change := range map[string]func(*Request){
		"":                       func(*Request) {},
		"name must be":           func(r *Request) { r.Name = "1 x" },
		"description must be":    func(r *Request) { r.Description = "" },
		"parameters must be":     func(r *Request) { r.Parameters = jsontext.Value(`{"type":"array"}`) },
		"timeoutMs must be":      func(r *Request) { r.TimeoutMS = 99 },
		"secret must be":         func(r *Request) { r.Secret = &short },
		"endpointUrl must begin": func(r *Request) { r.EndpointURL = "http://tools.acme.test/" },
		"endpointUrl ":           func(r *Request) { r.EndpointURL = "https://127.0.0.1/" },
	} {
		r := Request{Name: "search", Description: "d", EndpointURL: "https://tools.acme.test/x"}
		change(&r)
		if err := r.check(guard); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
