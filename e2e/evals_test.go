package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// An evalRun is an eval as its caller reads it.
type evalRun struct {
	work
	Cases      int
	Candidates []struct {
		Wins, Losses, Ties, Failed int
		WinRate                    *float64 `json:"win_rate"`
	}
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
}

// An evalCase is a case of an eval with what was asked for it.
type evalCase struct {
	ID       string
	Outcome  string
	Baseline struct {
		RequestID string `json:"request_id"`
	} `json:"baseline_answer"`
	Candidate struct {
		RequestID string `json:"request_id"`
	} `json:"candidate_answer"`
	Verdicts []struct {
		RequestID string `json:"request_id"`
	}
}

// requests returns the ids of the requests that a case was made of.
func (c *evalCase) requests() []string {
	all := []string{c.Baseline.RequestID, c.Candidate.RequestID}
	for _, v := range c.Verdicts {
		all = append(all, v.RequestID)
	}
	return all
}

// readCases reads the export of an eval.
func (c *caller) readCases(t *testing.T, id string) (all []evalCase) {
	t.Helper()
	_, text := c.call(t, http.MethodGet, "/v1/evals/"+id+"/cases/export", nil, http.StatusOK, nil)
	for line := range strings.Lines(text) {
		var one evalCase
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// compared asks for a comparison of mock/old and mock/new.
func compared(name string, more object) object {
	body := object{
		"name": "new for old", "rubric": "It is right, says " + name + ".", "judge_model": "mock/judges", "baseline_model": "mock/old",
		"candidate_models": []string{"mock/new"},
	}
	for key, value := range more {
		body[key] = value
	}
	return body
}

// An eval whose server is killed again and again, at random moments, goes on and ends. Every case is answered and
// judged, and nothing is paid for twice: what is charged is what the cases have. Answers that were not yet charged when
// the server died stay free, at most those that were under way.
func TestDrillKillDuringAnEval(t *testing.T) {
	t.Parallel()
	const atOnce, perCase = 8, 4
	eachEngine(t, func(t *testing.T, p instance) {
		cases := drills(24, 300)
		provider := startProvider(t)
		config := judgeConfig(t, provider, map[string]string{
			"old": "mock/old?good=0.6&latency=40ms", "new": "mock/new?good=0.8&latency=40ms", "judges": "mock?judge&latency=40ms",
		}, nil)
		server := p.serve(t, "--config", config)
		key := server.key()
		c := server.callerWith(key)
		var inline []object
		for i := range cases {
			inline = append(inline, object{"messages": []object{{"role": "user", "content": fmt.Sprintf("drill question %d", i)}}})
		}
		id, kills, run := c.begin(t, "/v1/evals", compared("the drill", object{"cases": inline})).ID, 0, evalRun{}
		for kills < drills(3, 20) {
			time.Sleep(rand.N(250 * time.Millisecond))
			server.kill()
			kills++
			server = p.serve(t, "--config", config)
			c = server.callerWith(key)
			if c.call(t, http.MethodGet, "/v1/evals/"+id, nil, http.StatusOK, &run); run.ended() {
				break
			}
		}
		run = c.awaitEval(t, id)
		if found := run.Candidates; run.Status != "DONE" || run.Progress.Done != cases || found[0].Failed != 0 || found[0].Wins+found[0].Losses+found[0].Ties != cases || found[0].Wins == 0 {
			t.Fatalf("%+v %s", run, deref(run.Error))
		}
		kept := map[string]bool{}
		all := c.readCases(t, id)
		for i := range all {
			for _, request := range all[i].requests() {
				if request == "" || kept[request] {
					t.Errorf("case %s has the request %q twice, or none", all[i].ID, request)
				}
				kept[request] = true
			}
		}
		asked := len(seenBy(t, provider, "drill question"))
		p.paidOnce(t, id, run.work, perCase*cases, kills*atOnce, asked)
		for _, row := range p.usage(t, "default") {
			if row.KeyID == id && !kept[row.RequestID] {
				t.Errorf("%s is charged, and its answer is in no case", row.RequestID)
			}
		}
		if len(all) != cases || len(kept) != perCase*cases {
			t.Errorf("%d cases with %d answers and verdicts", len(all), len(kept))
		}
		t.Logf("%d kills, %d requests at the provider for %d answers and verdicts", kills, asked, len(kept))
		p.verifyLedger(t)
	})
}

// awaitEval waits until an eval has ended.
func (c *caller) awaitEval(t *testing.T, id string) (run evalRun) {
	t.Helper()
	for deadline := time.Now().Add(time.Hour); !run.ended(); time.Sleep(20 * time.Millisecond) {
		run = evalRun{}
		c.call(t, http.MethodGet, "/v1/evals/"+id, nil, http.StatusOK, &run)
		if time.Now().After(deadline) {
			t.Fatalf("%s has not ended: %+v", id, run)
		}
	}
	return run
}

// An eval of many cases keeps its slots busy: its time is that of the provider. It needs little memory, however many
// cases it has, and its cases are read in pages at once.
func TestDrillManyCases(t *testing.T) {
	t.Parallel()
	const perCase = 4
	cases, slots, latency := drills(60, 10_000), drills(8, 64), time.Duration(drills(20, 300))*time.Millisecond
	p := newInstance(t, secret.Text{})
	provider := startProvider(t)
	slow := fmt.Sprintf("&latency=%s", latency)
	config := judgeConfig(t, provider, map[string]string{
		"chats": "mock?text=20", "old": "mock/old?text=20&good=0.6" + slow, "new": "mock/new?text=20&good=0.8" + slow, "judges": "mock?judge" + slow,
	}, nil)
	withSlots(t, config, slots)
	server := p.serve(t, "--config", config)
	c := server.callerWith(p.newWorkspace(t, "rich", 10_000*money.Dollar))
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "rich", "--retention", "7", "--json")
	for i := range cases {
		c.ask(t, chat("mock/chats", fmt.Sprintf("many questions, number %d", i)))
	}
	c.awaitLogs(t, cases)
	id := c.begin(t, "/v1/evals", compared("a load", object{"sample_count": cases})).ID
	pages := readPages(t, c, id)
	run := c.awaitEval(t, id)
	if run.Status != "DONE" || run.Progress.Done != cases || run.Cases != cases {
		t.Fatalf("%+v %s", run, deref(run.Error))
	}
	took := run.FinishedAt.Sub(run.StartedAt)
	busy := float64(cases*perCase) * latency.Seconds() / (took.Seconds() * float64(slots))
	pages = append(pages, readPages(t, c, id)...)
	slices.Sort(pages)
	p99, memory := pages[len(pages)*99/100], peak(t, server.Process.Pid)
	t.Logf("%d cases in %s: %.1f %% of %d slots busy, %d MB of memory at most, a page of cases in %s at p99", cases, took, 100*busy, slots, memory>>20, p99)
	if measured() && (busy < 0.9 || memory > 200<<20 || p99 > 50*time.Millisecond) {
		t.Errorf("want 90 %%, 200 MB and 50 ms")
	}
	p.costs(t, "rich", id, run.Cost)
	p.verifyLedger(t)
}

// readPages reads pages of cases at random places and in both orders, and returns how long each took.
func readPages(t *testing.T, c *caller, id string) (took []time.Duration) {
	t.Helper()
	for i := range drills(20, 300) {
		query := fmt.Sprintf("?limit=50&offset=%d", rand.N(drills(50, 9_000)))
		if i%2 == 0 {
			query += "&candidate=mock/new&sort=regression"
		}
		begun := time.Now()
		c.call(t, http.MethodGet, "/v1/evals/"+id+"/cases"+query, nil, http.StatusOK, nil)
		took = append(took, time.Since(begun))
	}
	return took
}

// withSlots adds the limit of requests that one job sends at once.
func withSlots(t *testing.T, config string, slots int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(config))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, string(text)+fmt.Sprintf("limits: {judge_calls: %d}\n", slots))
}
