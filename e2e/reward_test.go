package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// certifiedJudge makes a criterion whose judge has a certificate.
func (c *caller) certifiedJudge(t *testing.T, model string) string {
	t.Helper()
	id := c.criterion(t, model, nil)
	c.grade(t, id, inlines("what", 200))
	if w := c.calibrated(t, id); w.Block.Trust == "none" || w.Block.Trust == "provisional" {
		t.Fatalf("%+v", w.Block)
	}
	return id
}

// A scoredSession is a session as the API shows it.
type scoredSession struct {
	ID, Status string
	Budget     money.Nano `json:"budget_usd"`
	Spent      money.Nano `json:"spent_usd"`
	Scored     int
}

// session begins a reward session with one judge. A drill begins more in a minute than the abuse guard permits, and
// waits as it asks.
func (c *caller) session(t *testing.T, criterion string, budget money.Nano) (s scoredSession) {
	t.Helper()
	body := object{"label": "drill", "budget_usd": budget, "reward": object{"mode": "single", "criterionId": criterion}}
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Second) {
		status, text := c.call(t, http.MethodPost, "/v1/reward/sessions", body, 0, &s)
		switch {
		case status == http.StatusCreated:
			return s
		case status != http.StatusTooManyRequests || time.Now().After(deadline):
			t.Fatalf("begin a session: %d %s", status, text)
		}
	}
}

// rewardItems are items whose completions tell the mock judge the truth. what makes them different from others.
func rewardItems(what string, n int) []object {
	all := make([]object, n)
	for i := range all {
		all[i] = object{
			"id": strconv.Itoa(i), "prompt": "Question: " + what,
			"completion": fmt.Sprintf("Answer %d to %s [truth=%s]", i, what, verdictOf(i%2 == 0)),
		}
	}
	return all
}

// rewardScores is what score answers.
type rewardScores struct {
	Rewards []*float64
	Data    []struct {
		ID     string
		Reward *float64
		Flags  []string
	}
	Status string
	Spent  money.Nano `json:"spent_usd"`
	code   string     // of a refusal
	status int
}

// scores scores items. It returns an error where no answer came.
func (c *caller) scores(session, step string, items []object) (got rewardScores, _ error) {
	body, err := json.Marshal(object{"step": step, "items": items})
	if err != nil {
		return got, err
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.address+"/v1/reward/sessions/"+session+"/score", bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return got, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return got, err
	}
	got.status = response.StatusCode
	if got.status != http.StatusOK {
		got.code = (&answer{body: text}).code()
		return got, nil
	}
	return got, json.Unmarshal(text, &got)
}

// 50 callers score as the budget runs out, and in every second round the server is killed meanwhile. Whatever happens:
// no more is spent than the budget, the session ends once, what is left of its hold is free again to the nano-dollar,
// `ledger verify` passes, and no answer is paid for twice.
func TestDrillTheBudgetOfARewardSessionRunsOut(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		config := judgeConfig(t, provider, map[string]string{"judges": "mock?judge&latency=15ms&in=10000&out=100"}, nil)
		d := &budgetDrill{instance: p, config: config, provider: provider}
		d.start(t)
		d.criterion = d.caller.Load().certifiedJudge(t, "mock/judges")
		p.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "1000", "--json")
		kills, rewards := 0, 0
		for round := range drills(6, 100) {
			killed := round%2 == 1
			rewards += d.round(t, round, killed)
			if killed {
				kills++
			}
			if t.Failed() {
				t.Fatalf("in round %d; the server said:\n%s", round, d.server.log)
			}
		}
		t.Logf("%d rounds, %d kills, %d rewards", drills(6, 100), kills, rewards)
	})
}

type budgetDrill struct {
	instance
	config, provider, criterion, key string
	server                           *process
	caller                           atomic.Pointer[caller]
}

func (d *budgetDrill) start(t *testing.T) {
	t.Helper()
	d.server = d.serve(t, "--config", d.config, "--limits-judge-calls", "64")
	if d.key == "" {
		d.key = d.server.key()
	}
	d.caller.Store(d.server.callerWith(d.key))
}

// round runs one budget out, and returns how many items have a reward.
func (d *budgetDrill) round(t *testing.T, round int, kill bool) int {
	t.Helper()
	const callers, each = 50, 3
	before := d.wallet(t, "default")
	s := d.caller.Load().session(t, d.criterion, (200+10*money.Nano(rand.IntN(20)))*money.Dollar/1000)
	var group sync.WaitGroup
	var most atomic.Int64
	rewarded := make([]int, callers)
	for i := range callers {
		group.Go(func() {
			items := rewardItems(fmt.Sprintf("round %d of %d", round, i), each)
			for deadline := time.Now().Add(limit); ; {
				got, err := d.caller.Load().scores(s.ID, "1", items)
				if over := int64(got.Spent); over > most.Load() {
					most.Store(over)
				}
				if err == nil && got.status == http.StatusOK {
					rewarded[i] = each - nulls(got)
				}
				switch {
				case err == nil && got.code == "session_overbudget", err == nil && got.Status == "OVERBUDGET", err == nil && rewarded[i] == each:
					return
				case time.Now().After(deadline):
					t.Errorf("caller %d got %+v %v", i, got, err)
					return
				case err != nil || got.status == http.StatusServiceUnavailable:
					time.Sleep(10 * time.Millisecond) // the server is not there
				case got.status != http.StatusOK:
					t.Errorf("caller %d got %+v", i, got)
					return
				}
			}
		})
	}
	if kill {
		time.Sleep(rand.N(120 * time.Millisecond))
		d.server.kill()
		d.start(t)
	}
	group.Wait()
	d.check(t, round, kill, s, money.Nano(most.Load()), before)
	sum := 0
	for _, n := range rewarded {
		sum += n
	}
	return sum
}

func nulls(s rewardScores) (n int) {
	for _, r := range s.Rewards {
		if r == nil {
			n++
		}
	}
	return n
}

// check compares the session, its audit trail, its usage, the wallet and what the provider was asked.
func (d *budgetDrill) check(t *testing.T, round int, killed bool, s scoredSession, most money.Nano, before balance) {
	t.Helper()
	var now scoredSession
	d.caller.Load().call(t, http.MethodGet, "/v1/reward/sessions/"+s.ID, nil, http.StatusOK, &now)
	var trail struct {
		Data []struct{ Action, Subject string }
	}
	d.read(t, &trail, "/admin/audit?workspace=default&limit=100", "audit", "--workspace", "default", "--json")
	ends := 0
	for _, e := range trail.Data {
		if strings.Contains(e.Subject, s.ID) && strings.HasSuffix(e.Action, ".overbudget") {
			ends++
		}
	}
	if now.Status != "OVERBUDGET" || ends != 1 || now.Spent > s.Budget || most > s.Budget {
		t.Errorf("round %d: %+v, callers saw $%s; it ended %d times", round, now, most, ends)
	}
	var rows int
	var sum money.Nano
	var after balance
	eventually(t, "the usage is posted, and the hold released", func() bool {
		rows, sum = d.spentFor(t, "default", s.ID)
		after = d.wallet(t, "default")
		return sum == now.Spent && after.Held == 0
	})
	if after.Balance != before.Balance-sum || after.Spent != before.Spent+sum {
		t.Errorf("round %d: the wallet was %+v and is %+v after $%s", round, before, after, sum)
	}
	asked := map[string]int{}
	for _, q := range seenBy(t, d.provider, fmt.Sprintf("round %d of ", round)) {
		asked[q.Body]++
	}
	twice := slices.Max(values(asked))
	if rows > len(asked) || !killed && (twice != 1 || rows != len(asked) || now.Scored != rows) || now.Scored > len(asked) {
		t.Errorf("round %d: %d charges of %d questions, one asked %d times; %d items scored", round, rows, len(asked), twice, now.Scored)
	}
	d.verifyLedger(t)
}

func values(m map[string]int) []int {
	all := []int{0}
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// 1,000 calls of one item and 8 of 512 at once, over a judge that takes 300 ms: the slots are busy, no call is starved,
// and memory is bounded.
func TestDrillManyCallsShareTheSlots(t *testing.T) {
	t.Parallel()
	const slots, takes = 64, 300 * time.Millisecond
	singles, large, each := drills(100, 1000), drills(2, 8), drills(64, 512)
	p := newInstance(t, secret.Text{})
	provider := startProvider(t)
	server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"judges": fmt.Sprintf("mock?judge&latency=%s", takes)}, nil),
		"--limits-judge-calls", "64")
	c := server.caller()
	c.client.Transport = &http.Transport{MaxIdleConnsPerHost: 2000}
	s := c.session(t, c.certifiedJudge(t, "mock/judges"), 15*money.Dollar)
	calls := make([][]object, 0, singles+large)
	for i := range large {
		calls = append(calls, rewardItems(fmt.Sprint("large ", i), each))
	}
	for i := range singles {
		calls = append(calls, rewardItems(fmt.Sprint("single ", i), 1))
	}
	waits := make([]time.Duration, len(calls))
	began, cpu := time.Now(), used(t, server.Process.Pid)
	var group sync.WaitGroup
	for i, items := range calls {
		group.Go(func() {
			got, err := c.scores(s.ID, "1", items)
			if err != nil || got.status != http.StatusOK || nulls(got) > 0 {
				t.Errorf("call %d: %v %d, %d nulls", i, err, got.status, nulls(got))
			}
			waits[i] = time.Since(began)
		})
	}
	group.Wait()
	took, questions := time.Since(began), large*each+singles
	cpu = used(t, server.Process.Pid) - cpu
	all := slices.Concat(seenBy(t, provider, "Question: large"), seenBy(t, provider, "Question: single"))
	asked := len(all)
	slices.SortFunc(all, func(a, b seen) int { return a.At.Compare(b.At) })
	judged := all[asked-1].At.Add(takes).Sub(all[0].At) // from the first question to the last answer
	busy := float64(asked) * takes.Seconds() / (judged.Seconds() * slots)
	slices.Sort(waits)
	p50, p99 := waits[len(waits)/2], waits[len(waits)*99/100]
	most := peak(t, server.Process.Pid)
	t.Logf("%d calls, %d questions in %v: the judge had %.1f %% of %d slots busy; half of the calls waited %v, 99 %% %v, all %v; peak memory %d MiB; %v of CPU per item",
		len(calls), asked, took.Round(time.Millisecond), 100*busy, slots, p50.Round(time.Millisecond), p99.Round(time.Millisecond),
		waits[len(waits)-1].Round(time.Millisecond), most>>20, (cpu / time.Duration(questions)).Round(time.Microsecond))
	if asked != questions {
		t.Errorf("%d questions about %d items", asked, questions)
	}
	if most > 300<<20 {
		t.Errorf("the server took %d MiB", most>>20)
	}
	if measured() && (busy < 0.9 || p99 > 3*p50) {
		t.Errorf("slots %.2f busy, p50 %v, p99 %v", busy, p50, p99)
	}
}

// used is the CPU time of a process so far.
func used(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // what follows its name
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // Linux counts in hundredths of a second
}

// A trainer's token is in its address. It is in no log line at any level, no metric and no answer.
func TestTheTokenOfATrainerIsNotLogged(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	provider := startProvider(t)
	server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"judges": "mock?judge"}, nil),
		"--log-level", "debug", "--operations-listen", "127.0.0.1:0")
	c := server.caller()
	s := c.session(t, c.certifiedJudge(t, "mock/judges"), money.Dollar)
	var token struct{ Token string }
	c.call(t, http.MethodPost, "/v1/reward/sessions/"+s.ID+"/tokens", object{"name": "trainer"}, http.StatusCreated, &token)
	post := func(path, body string, want int) {
		t.Helper()
		response, err := http.Post(c.address+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want || strings.Contains(string(text), token.Token) {
			t.Errorf("%s: %d %s %v", strings.ReplaceAll(path, token.Token, "TOKEN"), response.StatusCode, text, err)
		}
	}
	body := `{"prompt":"q","response":"an answer [truth=pass]"}`
	post("/rewards/v1/"+token.Token+"/slime", body, http.StatusOK)
	post("/rewards/v1/"+token.Token+"/openrlhf", `{"query":["q: an answer [truth=fail]"],"prompts":["q:"],"labels":[""]}`, http.StatusOK)
	post("/rewards/v1/"+token.Token+"/slime", `{`, http.StatusBadRequest)
	post("/rewards/v1/"+token.Token+"/none", body, http.StatusNotFound)
	post("//rewards/v1/"+token.Token+"/slime", body, http.StatusNotFound)
	post("/rewards/v1/"+token.Token+"x/slime", body, http.StatusUnauthorized)
	c.call(t, http.MethodDelete, "/v1/reward/sessions/"+s.ID, nil, http.StatusOK, nil)
	post("/rewards/v1/"+token.Token+"/slime", body, http.StatusConflict)
	if code := server.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if text := server.log.String() + server.out.String(); strings.Contains(text, token.Token) || !strings.Contains(text, "/rewards/v1/{token}/slime") {
		t.Errorf("the log:\n%s", text)
	}
}
