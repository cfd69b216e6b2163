package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// A fleet is a server with an engine of its own for test/*. An hour of an engine costs $36: a second costs a cent.
type fleet struct {
	instance
	server *process
	key    string
	config string
	lives  string // where engines write how long they lived
}

const engineSecond = money.Dollar / 100

// dedicated is a dedicated endpoint as the API shows it.
type dedicated struct {
	ID, Status, Model string
	RoutingKey        string `json:"routing_key"`
	Replicas          int64
	Hourly            money.Nano `json:"hourly_usd"`
	Spent             money.Nano `json:"spent_usd"`
	LastUsedAt        *string    `json:"last_used_at"`
	Error             *struct {
		Code, Message string
		Lines         []string
	}
}

var buildEngine = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(filepath.Dir(binary), "engine")
	if out, err := build(path, "./engine").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the engine: %w\n%s", err, out)
	}
	_, err = os.ReadDir("engine") // a cached result must not outlive a change
	return path, err
})

func newFleet(t *testing.T, p instance) *fleet {
	t.Helper()
	engine, err := buildEngine()
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{instance: p, lives: t.TempDir(), config: filepath.Join(t.TempDir(), "sovereign.yaml")}
	writeFile(t, f.config, fmt.Sprintf(`
training: {prices: ["cpu=36"]}
serving:
  engines:
    - name: test
      base_models: ["test/*"]
      command: [%q, -host, "{host}", -port, "{port}", -name, "{name}", -lives, %q, -test, "%d"]
      gpu_types: [cpu]
    - name: broken
      base_models: ["broken/*"]
      command: ["%s", -name, never, -port, "{port}"]
      gpu_types: [cpu]
`, engine, f.lives, os.Getpid(), engine))
	t.Cleanup(func() {
		for _, l := range f.engines(t) {
			_ = syscall.Kill(l.pid, syscall.SIGKILL)
		}
	})
	f.server = p.serve(t, "--config", f.config)
	f.key = f.server.key()
	if code, text, err := post(p.socket(), "/admin/wallet/topups", `{"workspace":"default","amount_usd":975}`); err != nil || code != 201 {
		t.Fatal(code, text, err)
	}
	return f
}

// An engineLife is how long an engine was ready, by its own account.
type engineLife struct {
	pid         int
	ready, last int64 // microseconds
}

// alive reports whether the engine runs. A process that has ended and that nobody has waited for does not.
func (l engineLife) alive() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.pid))
	_, state, found := strings.Cut(string(text), ") ")
	return err == nil && found && state[0] != 'Z' && state[0] != 'X'
}

// engines reads what all engines have written.
func (f *fleet) engines(t *testing.T) (all []engineLife) {
	t.Helper()
	files, err := filepath.Glob(f.lives + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var l engineLife
		if n, _ := fmt.Sscan(string(text), &l.pid, &l.ready, &l.last); n == 3 { // or it was killed before it served
			all = append(all, l)
		}
	}
	return all
}

// running returns the engines that live.
func (f *fleet) running(t *testing.T) (all []engineLife) {
	for _, l := range f.engines(t) {
		if l.alive() {
			all = append(all, l)
		}
	}
	return all
}

func (f *fleet) caller() *caller { return f.server.callerWith(f.key) }

func (f *fleet) create(t *testing.T, body object) (e dedicated) {
	t.Helper()
	f.caller().call(t, "POST", "/v1/dedicated-endpoints", body, 201, &e)
	return e
}

func (f *fleet) get(t *testing.T, id string) (e dedicated) {
	t.Helper()
	f.caller().call(t, "GET", "/v1/dedicated-endpoints/"+id, nil, 200, &e)
	return e
}

// until waits for a state, and for a number of replicas that are ready.
func (f *fleet) until(t *testing.T, id, status string, replicas int64) (e dedicated) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s with %d replicas", id, status, replicas), func() bool {
		e = f.get(t, id)
		if e.Status == "FAILED" && status != "FAILED" {
			t.Fatalf("%+v", e.Error)
		}
		return e.Status == status && e.Replicas == replicas
	})
	return e
}

func (f *fleet) restart(t *testing.T) {
	t.Helper()
	f.server.kill()
	f.server = f.serve(t, "--config", f.config)
}

func TestADedicatedEndpointFromItsCreationToItsEnd(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		f := newFleet(t, p)
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
		c := f.caller()
		e := f.create(t, object{"name": "Support desk", "baseModel": "test/words", "idleTimeoutSeconds": 3})
		if e.Status != "PENDING" || e.Hourly != 36*money.Dollar || !strings.HasPrefix(e.Model, "dedicated/support-desk-") {
			t.Fatalf("%+v", e)
		}
		whole := c.must(t, chat(e.Model, "hello")) // waits for the engine
		if whole.status != 200 || !strings.Contains(string(whole.body), "The engine answers this.") || !strings.Contains(string(whole.body), `"completion_tokens":4`) {
			t.Fatalf("%d %s", whole.status, whole.body)
		}
		stream := c.must(t, chat(e.Model, "hello", `"stream":true`, `"stream_options":{"include_usage":true}`))
		if last := len(stream.events) - 2; !stream.done || last < 4 || !strings.Contains(stream.events[last], `"completion_tokens":4`) {
			t.Fatalf("%v %s %s", stream.done, stream.events, stream.body)
		}
		f.refusals(t, e)

		slept := f.until(t, e.ID, "RUNNING", 0)
		if slept.LastUsedAt == nil {
			t.Error("it was never used")
		}
		eventually(t, "nothing is set aside while it sleeps", func() bool { return f.wallet(t, "default").Held == 0 })
		if a := c.must(t, chat(e.Model, "wake up")); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		c.call(t, "POST", "/v1/dedicated-endpoints/"+e.ID+"/stop", nil, 200, nil)
		f.until(t, e.ID, "STOPPED", 0)
		if a := c.must(t, chat(e.Model, "are you there?")); a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Errorf("%d %s", a.status, a.body)
		}
		c.call(t, "POST", "/v1/dedicated-endpoints/"+e.ID+"/start", nil, 200, nil)
		f.until(t, e.ID, "RUNNING", 1)
		c.call(t, "DELETE", "/v1/dedicated-endpoints/"+e.ID, nil, 200, nil)
		c.call(t, "GET", "/v1/dedicated-endpoints/"+e.ID, nil, 404, nil)
		c.wants(t, "a deleted endpoint", chat(e.Model, "hello"), 404, "dedicated_endpoint_not_found")
		eventually(t, "all engines have ended, and their holds", func() bool {
			return len(f.running(t)) == 0 && f.wallet(t, "default").Held == 0
		})
		f.compare(t, 0)
		if rows := c.logs(t, ""); len(rows) != 0 {
			t.Errorf("%d exchanges are logged", len(rows))
		}
		p.verifyLedger(t)
		p.verifyTrail(t)
	})
}

// refusals checks who may not use an endpoint, and what for.
func (f *fleet) refusals(t *testing.T, e dedicated) {
	t.Helper()
	c := f.caller()
	other := f.server.callerWith(f.newWorkspace(t, "other", money.Dollar))
	other.wants(t, "another workspace", chat(e.Model, "hello"), 404, "dedicated_endpoint_not_found")
	other.call(t, "GET", "/v1/dedicated-endpoints/"+e.ID, nil, 404, nil)
	_, text := other.call(t, "POST", "/v1/dedicated-endpoints", object{"name": "x", "baseModel": "test/words"}, 402, nil)
	if !strings.Contains(text, "set aside") {
		t.Error(text)
	}
	c.call(t, "PUT", "/v1/aliases", object{"name": "support", "target_model": e.Model}, 400, nil)
	for field, body := range map[string]object{
		"maxHourlyUsd": {"name": "x", "baseModel": "test/words", "maxReplicas": 2, "maxHourlyUsd": 40},
		"baseModel":    {"name": "x", "baseModel": "unknown/words"},
		"gpuType":      {"name": "x", "baseModel": "test/words", "gpuType": "abacus"},
	} {
		if _, text := c.call(t, "POST", "/v1/dedicated-endpoints", body, 400, nil); !strings.HasPrefix(text, `{"error":"`+field) {
			t.Errorf("%s: %s", field, text)
		}
	}
}

// compare compares the ledger with the engines' own lives: no second is charged that none lived. lost is how many of
// them may have ended unseen.
func (f *fleet) compare(t *testing.T, lost int) {
	t.Helper()
	const interval = 60
	var lived, charged float64
	all := f.engines(t)
	for _, l := range all {
		lived += float64(l.last-l.ready) / 1e6
	}
	for _, row := range f.usage(t, "default") {
		if strings.HasPrefix(row.Model, "dedicated/") && row.Charged > 0 {
			charged += float64(row.Charged) / float64(engineSecond)
		}
	}
	// A life is charged in whole seconds; it is seen to begin by its health, and to end by its exit.
	t.Logf("%d engines lived %.1f s, and %.0f s are charged", len(all), lived, charged)
	if charged > lived+1.5*float64(len(all)) || charged < lived-2.5*float64(len(all))-interval*float64(lost) {
		t.Errorf("%d engines lived %.1f s, and %.0f s are charged; %d may have ended unseen", len(all), lived, charged, lost)
	}
}

func TestAnEndpointWhoseEngineCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newInstance(t, secret.Text{}))
	e := f.create(t, object{"name": "broken", "baseModel": "broken/words"})
	e = f.until(t, e.ID, "FAILED", 0)
	if e.Error == nil || e.Error.Code != "engine_failed" || !strings.Contains(strings.Join(e.Error.Lines, "\n"), "out of memory") || e.Spent != 0 {
		t.Errorf("%+v", e)
	}
	eventually(t, "nothing is set aside", func() bool { return f.wallet(t, "default").Held == 0 })
	var all struct{ Data []dedicated }
	f.mustAdmin(t, &all, "endpoint", "list", "--json")
	if len(all.Data) != 1 || all.Data[0].ID != e.ID {
		t.Errorf("%+v", all)
	}
}

// Engines and servers are killed at random moments. Callers are answered, by an engine that survived or by the next
// one; no engine is left over, and no second is charged that none lived.
func TestDrillKilledEnginesAndServersAreChargedOnce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		f := newFleet(t, p)
		e := f.create(t, object{"name": "drill", "baseModel": "test/words", "minReplicas": 1})
		f.until(t, e.ID, "RUNNING", 1)
		lost, engines, servers := 0, 0, 0
		for range drills(4, 50) {
			time.Sleep(time.Duration(rand.IntN(drills(1500, 6000))) * time.Millisecond)
			alive := f.running(t)
			switch which := rand.IntN(3); {
			case which == 0 && len(alive) > 0:
				engines++
				_ = syscall.Kill(alive[0].pid, syscall.SIGKILL)
			case which == 1:
				servers++
				f.restart(t)
			default: // both: nobody sees the engine end
				servers++
				f.server.kill()
				for _, l := range alive {
					engines, lost = engines+1, lost+1
					_ = syscall.Kill(l.pid, syscall.SIGKILL)
				}
				f.server = f.serve(t, "--config", f.config)
			}
			f.answers(t, e)
			if n := len(f.running(t)); n > 1 {
				t.Fatalf("%d engines run; the server said:\n%s", n, f.server.log)
			}
		}
		f.caller().call(t, "DELETE", "/v1/dedicated-endpoints/"+e.ID, nil, 200, nil)
		eventually(t, "all engines have ended, and their holds", func() bool {
			return len(f.running(t)) == 0 && f.wallet(t, "default").Held == 0
		})
		t.Logf("%d kills of engines, %d of servers", engines, servers)
		f.compare(t, lost)
		p.verifyLedger(t)
	})
}

// answers asks until an engine answers: a request that an engine took with it into death is a failure of its own. Five
// engines in a row that are killed young fail the endpoint: then its owner starts it again.
func (f *fleet) answers(t *testing.T, e dedicated) {
	t.Helper()
	eventually(t, "an engine answers", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if f.get(t, e.ID).Status == "FAILED" {
			f.caller().call(t, "POST", "/v1/dedicated-endpoints/"+e.ID+"/start", nil, 0, nil) // 409 while engines end
		}
		a, err := f.caller().post(ctx, "/v1/chat/completions", chat(e.Model, "hello"), nil)
		return err == nil && a.status == 200
	})
}
