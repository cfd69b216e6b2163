package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// A grpoServer is a trainingServer whose judges go by a rule. The judge letters passes small letters. The judge loose
// passes every printable character of ASCII; the labels of its calibration have no other ASCII than small letters, so its
// certificate does not show that.
type grpoServer struct {
	*trainingServer
	flags   []string
	dataset string
}

const grpoPrompts = 64

func newGRPOServer(t *testing.T, p instance, prompts int, flags ...string) *grpoServer {
	t.Helper()
	config := judgeConfig(t, startProvider(t), map[string]string{
		"letters": "mock?judge&likes=a-z&in=100&out=10", "loose": "mock?judge&likes=%20-~&in=100&out=10",
	}, map[string]string{"asked": "latency_ms: 0"})
	g := &grpoServer{flags: append(flags, "--config", config, "--limits-judge-calls", "64")}
	g.trainingServer = newTrainingServer(t, p, g.flags...)
	p.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "100", "--json")
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
	c := g.caller()
	for i := range prompts {
		if a, err := c.post(t.Context(), "/v1/chat/completions", chat("sim/asked", fmt.Sprintf("Write some letters, and then %d.", i)), nil); err != nil || a.status != http.StatusOK {
			t.Fatalf("%+v %v", a, err)
		}
	}
	c.awaitLogs(t, prompts)
	_, made, err := createDataset(c.address, c.key, `{"name":"prompts","holdout_pct":0}`)
	if err != nil || made.Rows != prompts {
		t.Fatalf("%+v %v", made, err)
	}
	g.dataset = made.ID
	return g
}

// judge makes a judge with a certificate. People passed letters, and failed what is not plain.
func (g *grpoServer) judge(t *testing.T, model string) string {
	t.Helper()
	c, rng := g.caller(), rand.New(rand.NewPCG(1, 1)) // the same labels for every judge
	id := c.criterion(t, model, nil)
	all := make([]labelled, 320)
	for i := range all {
		alphabet, verdict := []rune("abcdefghijklmnopqrstuvwxyz"), "pass"
		if i%2 == 1 {
			alphabet, verdict = []rune("äöüßéèçñøå"), "fail"
		}
		text := make([]rune, 12)
		for at := range text {
			text[at] = alphabet[rng.IntN(len(alphabet))]
		}
		all[i] = labelled{truth: verdict, post: object{
			"messages": []object{{"role": "user", "content": fmt.Sprintf("Write some letters: %d", i)}},
			"response": object{"role": "assistant", "content": string(text)}, "verdict": verdict,
		}}
	}
	c.grade(t, id, all)
	if w := c.calibrated(t, id); w.Block.Trust != "calibrated" && w.Block.Trust != "certified" {
		t.Fatalf("%+v", w.Block)
	}
	return id
}

// A reinforced is a GRPO run as the API shows it.
type reinforced struct {
	ID, Status   string
	Step         int64
	Attempt      int64
	RewardMean   *float64 `json:"reward_mean"`
	Held         bool
	HeldReason   string     `json:"held_reason"`
	PausedReason string     `json:"paused_reason"`
	SessionID    string     `json:"reward_session_id"`
	GPUSeconds   int64      `json:"gpu_seconds"`
	Spent        money.Nano `json:"spent_usd"`
	RewardSpent  money.Nano `json:"reward_spent_usd"`
	Candidate    *struct {
		Step           int64
		ModelVersionID string `json:"model_version_id"`
	}
	Error *struct{ Code, Message string }
}

// reinforce starts a run, when a worker has said that it can.
func (g *grpoServer) reinforce(t *testing.T, fields object) (run reinforced) {
	t.Helper()
	body := object{
		"baseModel": "tiny/bigram", "datasetId": g.dataset, "seed": 7, "budgetUsd": 20, "learningRate": 6e-3,
		"maxCompletionTokens": 12, "klBeta": 0.001,
	}
	maps.Copy(body, fields)
	c := g.caller()
	g.awaitWorker(t)
	c.call(t, http.MethodPost, "/v1/grpo/runs", body, http.StatusCreated, &run)
	return run
}

func (g *grpoServer) run(t *testing.T, id string) (run reinforced) {
	t.Helper()
	g.caller().call(t, http.MethodGet, "/v1/grpo/runs/"+id, nil, http.StatusOK, &run)
	return run
}

// until waits for something of a run, which may not fail.
func (g *grpoServer) until(t *testing.T, id, what string, holds func(reinforced) bool) (run reinforced) {
	t.Helper()
	eventually(t, what, func() bool {
		if run = g.run(t, id); run.Status == "FAILED" {
			t.Fatalf("%+v %+v", run, run.Error)
		}
		return holds(run)
	})
	return run
}

// rewards are the mean rewards by step. A step that was done twice has one.
func (g *grpoServer) rewards(t *testing.T, id string) []float64 {
	t.Helper()
	var events []struct {
		Step int64
		Data map[string]float64
	}
	g.caller().get(t, "/v1/grpo/runs/"+id+"/events?limit=1000", &events)
	byStep := map[int64]float64{}
	for _, e := range events {
		reward, ok := e.Data["reward"]
		if before, again := byStep[e.Step]; ok && again && before != reward {
			t.Errorf("step %d was done twice, with the rewards %v and %v", e.Step, before, reward)
		}
		if ok {
			byStep[e.Step] = reward
		}
	}
	all := make([]float64, 0, len(byStep))
	for _, step := range slices.Sorted(maps.Keys(byStep)) {
		all = append(all, byStep[step])
	}
	return all
}

func mean(all []float64) (sum float64) {
	for _, one := range all {
		sum += one / float64(len(all))
	}
	return sum
}

// A worker learns from a certified judge, and one that is killed is replaced: the reward rises, a candidate waits, no
// answer is paid for twice, and `ledger verify` passes.
func TestAWorkerTrainsByTheRewardsOfAJudge(t *testing.T) {
	t.Parallel()
	const steps, group, prompts = 30, 8, 2
	eachEngine(t, func(t *testing.T, p instance) {
		g := newGRPOServer(t, p, grpoPrompts)
		judge := g.judge(t, "mock/letters")
		w := g.worker(t)
		run := g.reinforce(t, object{
			"criterionId": judge, "maxSteps": steps, "groupSize": group, "promptsPerStep": prompts, "checkpointEvery": 5,
		})
		g.until(t, run.ID, "a checkpoint", func(now reinforced) bool {
			return strings.Contains(w.out.String(), "saved the checkpoint of step 10") || now.Status == "SUCCEEDED"
		})
		w.kill()
		g.mustAdmin(t, nil, "worker", "revoke", w.id) // so that nobody waits for its lease to run out
		g.worker(t)
		run = g.until(t, run.ID, "the end of the run", func(now reinforced) bool {
			return now.Status == "SUCCEEDED" && now.Spent == now.RewardSpent+money.Nano(now.GPUSeconds)*money.Dollar/100
		})
		rewards := g.rewards(t, run.ID)
		first, last := mean(rewards[:5]), mean(rewards[len(rewards)-5:])
		t.Logf("the mean reward of the first five steps is %.3f, and of the last five %.3f", first, last)
		if len(rewards) != steps || first > 0.25 || last < first+0.15 {
			t.Errorf("%d rewards: %v", len(rewards), rewards)
		}
		if run.Candidate == nil || run.Candidate.Step != steps || run.RewardSpent == 0 {
			t.Errorf("%+v %+v", run, run.Candidate)
		}
		var list struct {
			Waiting int64 `json:"candidates_waiting"`
		}
		g.caller().call(t, http.MethodGet, "/v1/grpo/runs", nil, http.StatusOK, &list)
		var session struct {
			Status string
			Scored int
		}
		g.caller().call(t, http.MethodGet, "/v1/reward/sessions/"+run.SessionID, nil, http.StatusOK, &session)
		rows, sum := 0, money.Nano(0)
		eventually(t, "the usage is posted", func() bool {
			rows, sum = g.spentFor(t, "default", run.SessionID)
			return sum == run.RewardSpent
		})
		if list.Waiting != 1 || session.Status != "COMPLETED" || session.Scored > steps*group*prompts || rows != session.Scored {
			t.Errorf("%d candidates wait; %+v, %d charges", list.Waiting, session, rows)
		}
		g.verifyLedger(t)
	})
}

// A judge that a run games disagrees with the anchor: the run is held, saves a checkpoint and pauses, says why, and
// goes on when somebody has released it.
func TestAGamedRunIsHeldAndGoesOnAfterARelease(t *testing.T) {
	t.Parallel()
	g := newGRPOServer(t, newInstance(t, secret.Text{}), grpoPrompts)
	judge, anchor := g.judge(t, "mock/loose"), g.judge(t, "mock/letters")
	g.worker(t)
	run := g.reinforce(t, object{
		"criterionId": judge, "anchorCriterionId": anchor, "maxSteps": 1000, "groupSize": 8, "promptsPerStep": 16,
		"checkpointEvery": 1,
	})
	held := g.until(t, run.ID, "a held run", func(now reinforced) bool { return now.Status == "PAUSED" })
	if !held.Held || !strings.HasPrefix(held.PausedReason, "held: the reward's judges pass") || held.HeldReason == "" {
		t.Fatalf("%+v", held)
	}
	t.Logf("held after %d steps: %s", held.Step, held.HeldReason)
	g.caller().call(t, http.MethodPost, "/v1/reward/sessions/"+run.SessionID+"/anchor/release", object{"note": "to see it go on"}, http.StatusOK, nil)
	g.until(t, run.ID, "further steps", func(now reinforced) bool { return now.Attempt > held.Attempt && now.Step > held.Step })
	if all := g.rewards(t, run.ID); int64(len(all)) <= held.Step {
		t.Errorf("%d rewards after %d steps", len(all), held.Step)
	}
	g.caller().call(t, http.MethodPost, "/v1/grpo/runs/"+run.ID+"/stop", nil, http.StatusOK, nil)
	g.until(t, run.ID, "the end of the run", func(now reinforced) bool {
		return now.Status == "CANCELLED" && now.Spent == now.RewardSpent+money.Nano(now.GPUSeconds)*money.Dollar/100
	})
	g.verifyLedger(t)
}
