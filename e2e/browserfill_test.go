package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// What a server holds before a walk.

// filled starts a server with the usual flags. The walk gets the key and the link that the first start printed, and
// what fill says.
func filled(fill func(t *testing.T, s *process) object) func(t *testing.T, p instance) (*process, object) {
	return func(t *testing.T, p instance) (*process, object) {
		t.Helper()
		s, facts := p.serve(t), object{}
		if fill != nil {
			facts = fill(t, s)
		}
		facts["key"], facts["link"] = s.key(), s.out.find(linkText, s.done)
		return s, facts
	}
}

// fillReview logs twenty exchanges to grade, of which two people take one differently, and a run of two steps.
func fillReview(t *testing.T, s *process) object {
	t.Helper()
	s.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
	c := s.caller()
	c.criterion(t, "sim/judge", nil)
	for i := range 20 {
		text := fmt.Sprintf("Question %d [truth=%s]", i, verdictOf(i%2 == 0))
		if i == 7 {
			text += ", the odd one"
		}
		c.ask(t, chat("sim/chat", text), "X-Service-Tag", "graded")
	}
	for i := range 2 {
		c.ask(t, chat("sim/chat", fmt.Sprintf("Step %d of the run", i)), "X-Service-Trace-Id", "run-1")
	}
	c.awaitLogs(t, 22)
	return object{}
}

// fillJudges makes a judge and labels for it, of which a few are wrong.
func fillJudges(t *testing.T, s *process) object {
	t.Helper()
	c := s.caller()
	judge := c.criterion(t, "sim/judge", nil)
	labels := inlines("what", 152)
	for i := range 8 {
		wrong := inline(fmt.Sprintf("mislabelled %d", i), verdictOf(i%2 == 0))
		wrong.post["verdict"] = opposite(wrong.truth)
		labels = append(labels, wrong)
	}
	c.grade(t, judge, labels)
	return object{"judge": judge}
}

// payload is a script that runs where text becomes HTML.
const payload = `<img src=x onerror=alert(1)>"'><script>alert(2)</script>`

// fillHostile writes payloads wherever the API takes a text: messages, tools, tags, runs, judges, labels, datasets,
// evals, sessions.
func fillHostile(t *testing.T, s *process) object {
	t.Helper()
	s.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
	c := s.caller()
	tools := fmt.Sprintf(`"tools":[{"type":"function","function":{"name":"look_up","description":%q,`+
		`"parameters":{"type":"object","properties":{%q:{"type":"string"}}}}}]`, payload, payload)
	const links = "[a link](javascript:alert(3)) ![a picture](https://evil.example/x.png)"
	for i := range 4 {
		text := fmt.Sprintf("%s number %d\n%s", payload, i, links)
		c.ask(t, chat("sim/chat", text, tools), "X-Service-Tag", payload[:28], "X-Service-Trace-Id", payload[:28])
	}
	c.ask(t, fmt.Sprintf(`{"model":"sim/chat","messages":[`+
		`{"role":"system","content":%q},{"role":"user","content":"hello"},{"role":"assistant","content":null,`+
		`"tool_calls":[{"id":"1","type":"function","function":{"name":%q,"arguments":%q}}]},`+
		`{"role":"tool","tool_call_id":"1","content":%q}]}`, payload, payload, payload, payload))
	c.awaitLogs(t, 5)
	judge := c.criterion(t, "sim/judge", object{"name": payload, "rubric": payload})
	labels := inlines(payload, 200)
	for i := range labels {
		labels[i].post["critique"], labels[i].post["author"] = payload, payload
		if i < 4 {
			labels[i].post["verdict"] = opposite(labels[i].truth)
		}
	}
	c.grade(t, judge, labels)
	c.calibrated(t, judge)
	var set, run, reward struct{ ID string }
	c.call(t, http.MethodPost, "/v1/datasets/from_logs", object{"name": payload}, http.StatusCreated, &set)
	run.ID = c.begin(t, "/v1/evals", object{
		"name": payload, "rubric": payload, "judge_model": "sim/judge", "baseline_model": "sim/chat",
		"candidate_models": []string{"sim/chat-large"},
		"cases":            []object{{"messages": []object{{"role": "user", "content": payload}}}},
	}).ID
	c.wait(t, "/v1/evals/"+run.ID)
	c.call(t, http.MethodPut, "/v1/aliases", object{"name": "support", "target_model": "sim/chat"}, http.StatusOK, nil)
	refused := object{"name": payload, "target_model": "sim/chat"}
	c.call(t, http.MethodPut, "/v1/aliases", refused, http.StatusBadRequest, nil)
	c.call(t, http.MethodPost, "/v1/reward/sessions", object{
		"label": payload, "budget_usd": 1, "reward": object{"mode": "single", "criterionId": judge},
	}, http.StatusCreated, &reward)
	return object{"payload": payload, "judge": judge, "dataset": set.ID, "eval": run.ID, "session": reward.ID}
}

// fillEvals makes a judge with a certificate.
func fillEvals(t *testing.T, s *process) object {
	t.Helper()
	return object{"judge": s.caller().certifiedJudge(t, "sim/judge")}
}

// prepareLogs starts a server with 100,000 logged rows, or a tenth of that on PostgreSQL, which takes longer to fill.
func prepareLogs(t *testing.T, p instance) (*process, object) {
	t.Helper()
	rows := 100_000
	if !p.url.Empty() {
		rows = 10_000
	}
	p.fillLogs(t, rows)
	s := p.serve(t)
	return s, object{"rows": rows, "link": s.link(t)}
}

// soundAnchor is a judge that does not err, and soundLabels is how many labels always leave 50 of each class for the
// report half.
var soundAnchor = map[string]string{"anchor": "sensitivity: 1, specificity: 1"}

const soundLabels = 320

// prepareRewards starts a server with two calibrated judges of different models. What pleases the first says nothing to
// the second: a text of the walk can deceive one of them.
func prepareRewards(t *testing.T, p instance) (*process, object) {
	t.Helper()
	s := p.serve(t, "--config", judgeConfig(t, startProvider(t), map[string]string{"judges": "mock?judge"}, soundAnchor))
	c := s.caller()
	for name, model := range map[string]string{"Pleased": "mock/judges", "Anchor": "sim/anchor"} {
		judge := c.criterion(t, model, object{"name": name})
		c.grade(t, judge, inlines("what", soundLabels))
		if w := c.calibrated(t, judge); w.Block.Trust != "calibrated" && w.Block.Trust != "certified" {
			t.Fatalf("%s: %+v", name, w.Block)
		}
	}
	return s, object{"key": s.key(), "link": s.out.find(linkText, s.done)}
}

var buildStripe = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(filepath.Dir(binary), "stripe")
	if out, err := build(path, "./stripe").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the payment provider: %w\n%s", err, out)
	}
	_, err = os.ReadDir("stripe") // a cached result must not outlive a change
	return path, err
})

// prepareWallet starts a server whose card payments go to a process that stands in for Stripe.
func prepareWallet(t *testing.T, p instance) (*process, object) {
	t.Helper()
	path, err := buildStripe()
	if err != nil {
		t.Fatal(err)
	}
	const key = "sk_test_of_the_walk"
	cmd, out, log := exec.Command(path), newTail(), newTail()
	cmd.Env = append(os.Environ(), "STRIPE_KEY="+key, "STRIPE_SECRET="+hookSecret)
	cmd.Stdout, cmd.Stderr = out, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	done := startChild(t, cmd)
	t.Cleanup(func() { _ = stdin.Close(); <-done })
	stripe := out.find(providerAddress, done)
	if stripe == "" {
		t.Fatalf("the payment provider does not serve: %s", log)
	}
	for range 3 { // people come back to the server's address, which is chosen before it starts: another may take it
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := free.Addr().String()
		_ = free.Close()
		s := p.start(t, "--listen", address, "--dashboard-url", "http://"+address, "--stripe-secret-key", key,
			"--stripe-webhook-secret", hookSecret, "--stripe-api-base", stripe)
		if s.log.find(serving, s.done) != "" {
			return s, object{"stripe": stripe, "link": s.link(t)}
		}
		t.Logf("another address: %s", s.log)
	}
	t.Fatal("the server does not serve")
	return nil, nil
}
