package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// enginesOf returns the processes that serve from a data folder: engines outlive their server.
func enginesOf(t *testing.T, data string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(data)) || !bytes.Contains(text, []byte("serve\x00--")) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killEngines ends the engines of a data folder.
func killEngines(t *testing.T, data string) {
	t.Helper()
	for _, pid := range enginesOf(t, data) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// newLoop is a grpoServer whose server serves what it trains.
func newLoop(t *testing.T, p instance, prompts int) *grpoServer {
	t.Helper()
	t.Cleanup(func() { killEngines(t, p.data) })
	return newGRPOServer(t, p, prompts, "--serving-engines", "[{name: small}]", "--serving-pool-engine", "small")
}

// A proven is a candidate with what its eval has found.
type proven struct {
	ModelVersionID string `json:"model_version_id"`
	EvalID         string `json:"eval_id"`
	Gate           string
	GateReason     string `json:"gate_reason"`
}

// passRates are the shares of the cases in which the baseline and the candidate of an eval pass.
func (c *caller) passRates(t *testing.T, eval string) map[string]float64 {
	t.Helper()
	var found struct {
		Data []struct {
			Verdicts []struct{ Of, Verdict string }
		}
	}
	c.call(t, http.MethodGet, "/v1/evals/"+eval+"/cases?limit=1000", nil, http.StatusOK, &found)
	rates := map[string]float64{}
	for _, one := range found.Data {
		for _, said := range one.Verdicts {
			if said.Verdict == "pass" {
				rates[said.Of] += 1 / float64(len(found.Data))
			}
		}
	}
	return rates
}

// Logs become a dataset, a judge gets a certificate, GRPO trains with it, the candidate is served and evaluated against
// its base, an alias adopts it as its canary on that evidence, and the alias's own gate promotes it.
func TestTheWholeLoopFromLogsToAPromotedModel(t *testing.T) {
	t.Parallel()
	eachEngine(t, wholeLoop)
}

func wholeLoop(t *testing.T, p instance) {
	g := newLoop(t, p, 128)
	c := g.caller()
	_, made, err := createDataset(c.address, c.key, `{"name":"loop","holdout_pct":40}`)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dataset", func() bool { return c.get(t, "/v1/datasets/"+made.ID, &made) == http.StatusOK })
	t.Logf("%d examples, and others in %s", made.Rows, made.HoldoutID)
	p.mustAdmin(t, nil, "workspace", "set", "--workspace", "default", "--default-max-tokens", "12", "--json") // as the model is trained
	judge := g.judge(t, "mock/letters")
	g.worker(t)
	run := g.reinforce(t, object{
		"datasetId": made.ID, "criterionId": judge, "maxSteps": 120, "groupSize": 16, "promptsPerStep": 8, "checkpointEvery": 40,
		"learningRate": 2e-3, "budgetUsd": 60,
	})
	g.until(t, run.ID, "the end of the run", func(now reinforced) bool { return now.Status == "SUCCEEDED" })
	rewards := g.rewards(t, run.ID)
	t.Logf("GRPO: the mean reward of the first five steps is %.3f, and of the last five %.3f", mean(rewards[:5]), mean(rewards[len(rewards)-5:]))

	var candidate proven
	eventually(t, "the gate of the candidate", func() bool {
		var all []proven
		c.get(t, "/v1/grpo/candidates", &all)
		candidate = all[0]
		return candidate.Gate != ""
	})
	var version struct {
		Name      string
		AdoptedAt *string `json:"adopted_at"`
	}
	c.get(t, "/v1/model-versions/"+candidate.ModelVersionID, &version)
	if candidate.Gate != "pass" {
		_, text := c.call(t, http.MethodGet, "/v1/evals/"+candidate.EvalID, nil, http.StatusOK, nil)
		t.Fatalf("%+v: its eval is %s", candidate, text)
	}
	const base = "ft/base/tiny/bigram"
	adopt := func(alias string, want int) (text string) {
		_, text = c.call(t, http.MethodPost, "/v1/model-versions/"+candidate.ModelVersionID+"/adopt",
			object{"aliasName": alias, "canaryPercent": 50, "evalId": candidate.EvalID}, want, nil)
		return text
	}
	c.call(t, http.MethodPut, "/v1/aliases", object{"name": "other", "target_model": "sim/asked"}, http.StatusOK, nil)
	if text := adopt("other", http.StatusPreconditionFailed); !strings.Contains(text, "it compares") {
		t.Error(text)
	}
	c.call(t, http.MethodPut, "/v1/aliases", object{
		"name": "support", "target_model": base, "gate_criterion_id": judge, "gate_mode": "auto",
	}, http.StatusOK, nil)
	adopt("support", http.StatusOK)
	adopt("support", http.StatusOK) // a repetition makes no difference
	stop := c.keepAsking(t, 2)
	var a gatedAlias
	eventually(t, "the gate acts", func() bool { a = c.support(t); return a.CanaryPercent == 0 })
	stop()
	if a.TargetModel != version.Name || a.Gate.Verdict != "promote" {
		t.Errorf("%+v", a)
	}
	t.Logf("the gate: %s after %d requests: %s", a.Gate.Verdict, a.judged(), a.Gate.Reason)

	var evals struct {
		Data []struct{ ID string }
	}
	c.get(t, "/v1/evals", &evals)
	if len(evals.Data) != 1 || evals.Data[0].ID != candidate.EvalID {
		t.Errorf("%+v", evals)
	}
	rates := c.passRates(t, candidate.EvalID)
	if rates["candidate"] < 0.5 || rates["baseline"] > 0.1 {
		t.Errorf("%v", rates)
	}
	t.Logf("the eval: %.0f %% of the base model's answers pass, and %.0f %% of the candidate's", 100*rates["baseline"], 100*rates["candidate"])
	p.verifyLedger(t)
	p.verifyTrail(t)
}

// What was trained is a model of its workspace: listed, answered and streamed, until it is deleted.
func TestATrainedModelIsServedUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		g := newLoop(t, p, 8)
		g.worker(t)
		g.awaitWorker(t)
		c := g.caller()
		var job tuning
		c.call(t, http.MethodPost, "/v1/fine-tuning/jobs", object{
			"baseModel": "tiny/bigram", "trainingFile": g.file, "budgetUsd": 5, "seed": 1, "hyperparameters": object{"epochs": 1},
		}, http.StatusCreated, &job)
		eventually(t, "the end of the job", func() bool {
			c.call(t, http.MethodGet, "/v1/fine-tuning/jobs/"+job.ID, nil, http.StatusOK, &job)
			return job.Status == "SUCCEEDED"
		})
		var version struct{ Name string }
		c.get(t, "/v1/model-versions/"+job.ModelVersionID, &version)
		var models struct {
			Data []struct {
				ID      string
				OwnedBy string `json:"owned_by"`
			}
		}
		eventually(t, "the model is listed", func() bool {
			c.call(t, http.MethodGet, "/v1/models", nil, http.StatusOK, &models)
			for _, m := range models.Data {
				if m.ID == version.Name {
					return strings.HasPrefix(m.OwnedBy, "ws_")
				}
			}
			return false
		})
		asked := object{"model": version.Name, "messages": []object{{"role": "user", "content": "say red"}}}
		_, text := c.call(t, http.MethodPost, "/v1/chat/completions", asked, http.StatusOK, nil)
		if !strings.Contains(text, `"usage"`) {
			t.Error(text)
		}
		asked["stream"] = true
		if _, text = c.call(t, http.MethodPost, "/v1/chat/completions", asked, http.StatusOK, nil); !strings.Contains(text, "[DONE]") {
			t.Error(text)
		}
		c.call(t, http.MethodDelete, "/v1/model-versions/"+job.ModelVersionID, nil, http.StatusOK, nil)
		c.call(t, http.MethodPost, "/v1/chat/completions", asked, http.StatusNotFound, nil)
		p.verifyLedger(t)
	})
}
