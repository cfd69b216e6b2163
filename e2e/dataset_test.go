package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A build whose server is killed again and again, at random moments, goes on by itself and ends: the request, repeated
// under its Idempotency-Key, is answered with the one dataset that it made.
func TestDrillKillDuringADatasetBuild(t *testing.T) {
	const exchanges, callers = 400, 8
	eachEngine(t, func(t *testing.T, p instance) {
		server := p.serve(t)
		key := server.key()
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
		c := server.callerWith(key)
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				for n := i; n < exchanges; n += callers {
					a, err := c.post(t.Context(), "/v1/chat/completions", chat("sim/chat", fmt.Sprintf("Question %d, about %x?", n, rand.Uint64())), nil)
					if err != nil || a.status != http.StatusOK {
						t.Errorf("%v", err)
					}
				}
			})
		}
		group.Wait()
		c.awaitLogs(t, exchanges)
		for round := range drills(2, 12) {
			body := fmt.Sprintf(`{"name":"round %d","holdout_pct":10}`, round)
			for range drills(3, 8) {
				answered := make(chan struct{})
				go func() { // the answer is lost with the server
					defer close(answered)
					_, _, _ = createDataset(server.address(), key, body)
				}()
				time.Sleep(rand.N(200 * time.Millisecond))
				server.kill()
				<-answered
				server = p.serve(t)
			}
			status, made, err := createDataset(server.address(), key, body)
			if err != nil || status != http.StatusCreated || made.HoldoutID == "" {
				t.Fatalf("%d %+v %v", status, made, err)
			}
			c = server.callerWith(key)
			var all struct{ Data []builtDataset }
			c.call(t, http.MethodGet, "/v1/datasets", nil, http.StatusOK, &all)
			if len(all.Data) != 2*(round+1) || all.Data[0].ID != made.ID || all.Data[1].ID != made.HoldoutID || all.Data[0].Rows+all.Data[1].Rows != exchanges {
				t.Errorf("round %d: %+v", round, all.Data)
			}
			lines := 0
			for _, d := range all.Data[:2] {
				_, text := c.read(t, "/v1/datasets/"+d.ID+"/export")
				lines += strings.Count(string(text), "\n")
			}
			if lines != exchanges {
				t.Errorf("round %d: %d examples", round, lines)
			}
		}
	})
}

type builtDataset struct {
	ID        string `json:"id"`
	HoldoutID string `json:"holdout_id"`
	Rows      int    `json:"rows"`
}

// createDataset asks for a dataset under an Idempotency-Key that is made of the body.
func createDataset(address, key, body string) (status int, made builtDataset, err error) {
	request, err := http.NewRequest(http.MethodPost, address+"/v1/datasets/from_logs", strings.NewReader(body))
	if err != nil {
		return 0, made, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", fmt.Sprintf("%x", body))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, made, err
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode, made, json.NewDecoder(response.Body).Decode(&made)
}

// No question of a holdout is in its training set: neither one that was answered many times, nor the turn before two
// follow-ups whose own first turn the filter leaves out.
func TestNoQuestionOfAHoldoutIsTrainedOn(t *testing.T) {
	const questions, answers = 16, 4
	eachEngine(t, func(t *testing.T, p instance) {
		server := p.serve(t)
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
		c := server.callerWith(server.key())
		c.header = http.Header{"X-Service-Tag": {"kept"}}
		ask := func(body string) {
			if a, err := c.post(t.Context(), "/v1/chat/completions", body, nil); err != nil || a.status != http.StatusOK {
				t.Fatalf("%+v %v", a, err)
			}
		}
		for q := range questions {
			for seed := range answers {
				sim := fmt.Sprintf(`"sim":{"seed":%d,"tokens":80,"latency_ms":0}`, q*answers+seed+1)
				ask(chat("sim/chat", fmt.Sprintf("Question %d?", q), sim))
				ask(fmt.Sprintf(`{"model":"sim/chat","messages":[{"role":"user","content":"Topic %d?"},
					{"role":"assistant","content":"Told %d."},{"role":"user","content":"And %d?"}],%s}`, q, q, seed, sim))
			}
		}
		c.awaitLogs(t, 2*questions*answers)
		_, made, err := createDataset(server.address(), c.key, `{"name":"all","holdout_pct":25,"filters":{"tag":"kept"}}`)
		if err != nil || made.Rows == 0 {
			t.Fatalf("%+v %v", made, err)
		}
		trained, held := c.firstQuestions(t, made.ID), c.firstQuestions(t, made.HoldoutID)
		shared := 0
		for question := range held {
			if trained[question] {
				shared++
			}
		}
		if shared > 0 || len(held) < 3 || len(trained)+len(held) != 2*questions {
			t.Errorf("%d of %d held out questions are among the %d that are trained on", shared, len(held), len(trained))
		}
		var setup struct{ Next string }
		c.get(t, "/v1/setup/status", &setup)
		if setup.Next != "calibrate_judge" {
			t.Errorf("logging is on and there is a dataset, and the next step is %s", setup.Next)
		}
	})
}

// firstQuestions reads what the conversations of a dataset begin with.
func (c *caller) firstQuestions(t *testing.T, dataset string) map[string]bool {
	t.Helper()
	_, text := c.read(t, "/v1/datasets/"+dataset+"/export")
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var example struct{ Messages []struct{ Content string } }
		if err := json.Unmarshal([]byte(line), &example); err != nil {
			t.Fatal(err)
		}
		all[example.Messages[0].Content] = true
	}
	return all
}
