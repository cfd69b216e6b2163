package app

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sovereign/internal/domain/eval"
	"sovereign/internal/store/job"
)

const gateKey = "sk_sovereign_canary"

// A gateServer answers as a server with one eval does.
type gateServer struct {
	*httptest.Server
	statuses []string // of the eval, one for each look; the last one stays
	failure  string   // of the eval, as JSON
	status   int      // of the gate
	body     string   // of the gate

	mu      sync.Mutex
	looks   int
	queries []url.Values
}

const (
	winCheck   = `{"check":"min_win_rate","observed":0.7,"bound":0.6123456,"threshold":0.5,"pass":true,"reason":"it wins 70, loses 30 and ties 0 of 100 cases: the win rate is at least 61.2 %, and 50.0 % is asked for"}`
	costCheck  = `{"check":"max_cost_ratio","observed":2.5,"bound":null,"threshold":1.2,"pass":false,"reason":"the total cost is not known well enough: there are too few cases with both answers"}`
	gatePass   = `{"object":"gate","pass":true,"eval_id":"eval_1","candidate":"sim/chat-large","checks":[` + winCheck + `]}`
	gateRefuse = `{"error":{"message":"1 of 2 checks fails","type":"invalid_request_error","code":"precondition_failed","param":null},"checks":[` + winCheck + `,` + costCheck + `]}`
)

func newGateServer(t *testing.T, s *gateServer) *gateServer {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/evals/eval_1", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		status := s.statuses[min(s.looks, len(s.statuses)-1)]
		s.looks++
		s.mu.Unlock()
		_, _ = fmt.Fprintf(w, `{"id":"eval_1","object":"eval","status":%q,"progress":{"done":3,"total":10},"error":%s}`, status, cmp.Or(s.failure, "null"))
	})
	mux.HandleFunc("GET /v1/evals/eval_1/gate", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.queries = append(s.queries, r.URL.Query())
		s.mu.Unlock()
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.body+"\n")
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"no eval in this workspace","type":"invalid_request_error","code":"not_found","param":null}}`)
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+gateKey {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":{"message":"the key is missing, malformed or revoked","type":"invalid_request_error","code":"invalid_api_key","param":null}}`)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// runGate runs the command without pauses.
func runGate(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var written, progress bytes.Buffer
	err := func() error {
		p, err := parse(append([]string{"gate"}, args...), io.Discard)
		if err != nil {
			return &exitError{gateUnasked, err}
		}
		c := &p.grammar.Gate
		key, err := c.key()
		if err != nil {
			return &exitError{gateUnasked, err}
		}
		client, err := newGateClient(c.URL, key)
		if err != nil {
			return &exitError{gateUnasked, err}
		}
		client.look, client.pause = time.Millisecond, time.Millisecond
		return c.ask(client, &written, progressOn(&progress, false))
	}()
	if err == nil {
		return 0, written.String(), progress.String()
	}
	return exitCode(err), written.String(), progress.String() + err.Error()
}

func TestGateExitsWithWhatTheGateSays(t *testing.T) {
	t.Setenv("SOVEREIGN_API_KEY", gateKey)
	done := []string{"DONE"}
	for name, c := range map[string]struct {
		server *gateServer
		args   string
		code   int
		says   string
	}{
		"a pass":                       {&gateServer{statuses: done, status: 200, body: gatePass}, "eval_1 --min-win-rate 0.5", 0, "The gate passes."},
		"a pass after a while":         {&gateServer{statuses: []string{"QUEUED", "RUNNING", "RUNNING", "DONE"}, status: 200, body: gatePass}, "eval_1", 0, "eval_1 RUNNING, 3 of 10"},
		"nothing asked":                {&gateServer{statuses: done, status: 200, body: `{"object":"gate","pass":true,"eval_id":"eval_1","candidate":"c","checks":[]}`}, "eval_1", 0, "The gate passes."},
		"a refusal":                    {&gateServer{statuses: done, status: 412, body: gateRefuse}, "eval_1 --min-win-rate 0.5 --max-cost-ratio 1.2", 1, "1 of 2 checks fails"},
		"a failed run":                 {&gateServer{statuses: []string{"RUNNING", "FAILED"}, failure: `"the wallet is empty"`, status: 200, body: gatePass}, "eval_1", 1, "the run is FAILED: the wallet is empty"},
		"a cancelled run":              {&gateServer{statuses: []string{"CANCELLED"}, status: 200, body: gatePass}, "eval_1", 1, "the run is CANCELLED"},
		"another eval":                 {&gateServer{statuses: done}, "eval_2", 2, "no eval in this workspace"},
		"a bad threshold":              {&gateServer{statuses: done, status: 400, body: `{"error":{"message":"min_win_rate must be at most 1"}}`}, "eval_1 --min-win-rate 7", 2, "at most 1"},
		"no candidate":                 {&gateServer{statuses: done, status: 400, body: `{"error":{"message":"candidate is required"}}`}, "eval_1", 2, "candidate is required"},
		"no permission":                {&gateServer{statuses: done, status: 403, body: `{"error":{"message":"no"}}`}, "eval_1", 2, "no"},
		"a server that fails":          {&gateServer{statuses: done, status: 500, body: `{"error":{"message":"internal error"}}`}, "eval_1", 2, "internal error"},
		"a server that is away":        {&gateServer{statuses: done, status: 503, body: `{"error":{"message":"stopping"}}`}, "eval_1", 2, "stopping"},
		"a run that does not end":      {&gateServer{statuses: []string{"RUNNING"}}, "eval_1 --timeout 50ms", 2, "has not ended after 50ms"},
		"a flag that is none":          {&gateServer{statuses: done}, "eval_1 --min-wins 1", 2, "unknown flag"},
		"a number that is none":        {&gateServer{statuses: done}, "eval_1 --min-win-rate half", 2, "min-win-rate"},
		"a page":                       {&gateServer{statuses: done, status: 200, body: "<html>Welcome"}, "eval_1", 2, "not a gate's"},
		"another object":               {&gateServer{statuses: done, status: 200, body: `{"object":"eval","pass":true,"eval_id":"eval_1"}`}, "eval_1", 2, "not that of this gate"},
		"a pass that is none":          {&gateServer{statuses: done, status: 200, body: strings.Replace(gatePass, `true`, `false`, 1)}, "eval_1", 2, "not that of this gate"},
		"a pass of another eval":       {&gateServer{statuses: done, status: 200, body: strings.Replace(gatePass, `eval_1`, `eval_2`, 1)}, "eval_1", 2, "not that of this gate"},
		"a pass of another candidate":  {&gateServer{statuses: done, status: 200, body: gatePass}, "eval_1 --candidate sim/other", 2, "not that of this gate"},
		"a pass in contradiction":      {&gateServer{statuses: done, status: 200, body: strings.Replace(gatePass, winCheck, costCheck, 1)}, "eval_1", 2, "contradicts itself"},
		"a pass without what is asked": {&gateServer{statuses: done, status: 200, body: gatePass}, "eval_1 --min-win-rate 0.5 --max-latency-ratio 2", 2, "does not answer max_latency_ratio"},
		"a status that is none":        {&gateServer{statuses: []string{"FINE"}}, "eval_1", 2, "not an eval"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newGateServer(t, c.server)
			code, out, errs := runGate(t, append(strings.Fields(c.args), "--url", s.URL)...)
			if code != c.code || !strings.Contains(out+errs, c.says) || strings.Contains(out+errs, "canary") {
				t.Errorf("exits with %d, want %d:\n%s\n%s", code, c.code, out, errs)
			}
		})
	}
}

func TestGateAsksForWhatItsFlagsSay(t *testing.T) {
	t.Setenv("SOVEREIGN_API_KEY", gateKey)
	s := newGateServer(t, &gateServer{statuses: []string{"DONE"}, status: 412, body: gateRefuse})
	code, _, errs := runGate(t, "eval_1", "--url", s.URL+"/v1/", "--candidate", "sim/a&b", "--min-win-rate", "0.5", "--min-pass-rate", "0.9", "--max-regression", "0.05",
		"--max-cost-ratio", "1.5", "--max-latency-ratio", "2", "--require-trust", "measured", "--confidence", "0.99")
	if code != 1 || len(s.queries) != 1 {
		t.Fatalf("%d %s after %d questions", code, errs, len(s.queries))
	}
	const want = "candidate=sim%2Fa%26b&confidence=0.99&max_cost_ratio=1.5&max_latency_ratio=2&max_regression=0.05&min_pass_rate=0.9&min_win_rate=0.5&require_trust=measured"
	if got := s.queries[0].Encode(); got != want {
		t.Errorf("asked\n%s, want\n%s", got, want)
	}
}

func TestGateShowsTheChecks(t *testing.T) {
	t.Setenv("SOVEREIGN_API_KEY", gateKey)
	s := newGateServer(t, &gateServer{statuses: []string{"DONE"}, status: 412, body: gateRefuse})
	const want = `eval_1

CHECK                   OBSERVED       BOUND   THRESHOLD  RESULT
min_win_rate                 0.7      0.6123         0.5  pass
  it wins 70, loses 30 and ties 0 of 100 cases: the win rate is at least 61.2 %,
  and 50.0 % is asked for
max_cost_ratio               2.5           -         1.2  refused
  the total cost is not known well enough: there are too few cases with both
  answers

The gate refuses.
`
	if _, out, _ := runGate(t, "eval_1", "--url", s.URL); out != want {
		t.Errorf("shown\n%s\nwant\n%s", out, want)
	}
	if code, out, _ := runGate(t, "eval_1", "--url", s.URL, "--json"); code != 1 || out != gateRefuse+"\n" {
		t.Errorf("%d %s", code, out)
	}
}

// Whatever a server answers, a line has 80 characters, and none of them controls a terminal.
func TestTheTableFitsATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringN(100, 300, -1), rapid.SampledFrom([]string{"\x1b[2J", "a\r\nb", strings.Repeat("x", 200)}))
		figure := rapid.Ptr(rapid.Float64(), true)
		v := gateVerdict{Candidate: text.Draw(t, "candidate")}
		for range rapid.IntRange(0, 3).Draw(t, "checks") {
			v.Checks = append(v.Checks, eval.Check{
				Check: text.Draw(t, "check"), Observed: figure.Draw(t, "observed"), Bound: figure.Draw(t, "bound"),
				Threshold: figure.Draw(t, "threshold"), Reason: text.Draw(t, "reason"),
			})
		}
		for line := range strings.Lines(v.table(text.Draw(t, "id"))) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > 80 || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%d characters: %q", utf8.RuneCountInString(line), line)
			}
		}
	})
}

// The key comes from the environment or a file, goes to the named server alone, and is shown nowhere.
func TestTheKeyOfTheGateGoesNowhereElse(t *testing.T) {
	reached := make(chan string, 10)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Header.Get("Authorization") }))
	t.Cleanup(elsewhere.Close)
	redirecting := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	t.Setenv("SOVEREIGN_API_KEY", gateKey)
	if code, out, errs := runGate(t, "eval_1", "--url", redirecting.URL); code != 2 || len(reached) != 0 || strings.Contains(out+errs, "canary") {
		t.Errorf("exits with %d after %d requests elsewhere:\n%s%s", code, len(reached), out, errs)
	}
	for _, bad := range []string{"", "models.example.com", "ftp://x", "https://me:" + gateKey + "@x", "https://x?key=" + gateKey} {
		if code, out, errs := runGate(t, "eval_1", "--url", bad); code != 2 || strings.Contains(out+errs, "canary") {
			t.Errorf("%s: exits with %d: %s%s", bad, code, out, errs)
		}
	}
	s := newGateServer(t, &gateServer{statuses: []string{"DONE"}, status: 200, body: gatePass})
	t.Setenv("SOVEREIGN_API_KEY", "sk_sovereign_wrong_canary")
	if code, out, errs := runGate(t, "eval_1", "--url", s.URL); code != 2 || strings.Contains(out+errs, "canary") {
		t.Errorf("a wrong key: exits with %d: %s%s", code, out, errs)
	}
	file := filepath.Join(t.TempDir(), "key")
	for text, want := range map[string]int{gateKey + "\n": 0, "two words": 2, "": 2} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := runGate(t, "eval_1", "--url", s.URL, "--key-file", file); code != want {
			t.Errorf("a file with %q: exits with %d: %s", text, code, errs)
		}
	}
	t.Setenv("SOVEREIGN_API_KEY", "")
	if code, _, errs := runGate(t, "eval_1", "--url", s.URL); code != 2 || !strings.Contains(errs, "SOVEREIGN_API_KEY") {
		t.Errorf("no key: exits with %d: %s", code, errs)
	}
}

// A server that restarts while a pipeline waits is asked again.
func TestGateOutlastsARestart(t *testing.T) {
	t.Setenv("SOVEREIGN_API_KEY", gateKey)
	s := newGateServer(t, &gateServer{statuses: []string{"RUNNING", "DONE"}, status: 200, body: gatePass})
	inner := s.Config.Handler
	refusals := []int{http.StatusServiceUnavailable, http.StatusBadGateway, 0, http.StatusTooManyRequests} // 0 breaks the connection
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		var refuse *int
		if len(refusals) > 0 {
			refuse, refusals = &refusals[0], refusals[1:]
		}
		s.mu.Unlock()
		switch {
		case refuse == nil:
			inner.ServeHTTP(w, r)
		case *refuse == 0:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(*refuse)
		}
	})
	if code, _, errs := runGate(t, "eval_1", "--url", s.URL); code != 0 {
		t.Errorf("exits with %d: %s", code, errs)
	}
}

func TestProgressIsShownInPlaceOnATerminalOnly(t *testing.T) {
	var log, screen bytes.Buffer
	for w, terminal := range map[*bytes.Buffer]bool{&log: false, &screen: true} {
		show := progressOn(w, terminal)
		for i, status := range []string{"QUEUED", "RUNNING", "RUNNING", "DONE"} {
			run := &evalState{ID: "eval_1"}
			run.Status, run.Progress.Done, run.Progress.Total = job.Status(status), int64(i), 3
			show(run)
		}
	}
	if got, want := log.String(), "eval_1 QUEUED, 0 of 3\neval_1 RUNNING, 1 of 3\neval_1 DONE, 3 of 3\n"; got != want {
		t.Errorf("a log gets %q", got)
	}
	if got := screen.String(); strings.Count(got, "\r\x1b[K") != 4 || strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\n") {
		t.Errorf("a terminal gets %q", got)
	}
}

// The process itself exits with the code, and a command line that is wrong is not a refusal.
func TestGateIsACommandOfTheBinary(t *testing.T) {
	t.Setenv("SOVEREIGN_API_KEY", gateKey)
	s := newGateServer(t, &gateServer{statuses: []string{"DONE"}, status: 200, body: gatePass})
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"gate", "eval_1", "--url", s.URL}, 0},
		{[]string{"gate", "eval_2", "--url", s.URL}, 2},
		{[]string{"gate", "--url", s.URL}, 2},
		{[]string{"gate", "eval_1"}, 2},
		{[]string{"gate", "--help"}, 0},
		{[]string{"nonsense"}, 1},
	} {
		var out, errs bytes.Buffer
		if code := Main(c.args, &out, &errs); code != c.want {
			t.Errorf("%v exits with %d, want %d: %s%s", c.args, code, c.want, out.String(), errs.String())
		}
	}
	t.Setenv("SOVEREIGN_URL", s.URL)
	var out, errs bytes.Buffer
	if code := Main([]string{"gate", "eval_1"}, &out, &errs); code != 0 || !strings.Contains(out.String(), "sim/chat-large") {
		t.Errorf("with SOVEREIGN_URL: exits with %d: %s%s", code, out.String(), errs.String())
	}
}
