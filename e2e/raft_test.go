package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// A raftRound is a RAFT round as the API shows it.
type raftRound struct {
	ID, Status, Stage string
	Round             int64
	Accepted          int64
	Before            *raftMeasure `json:"reward_before"`
	After             *raftMeasure `json:"reward_after"`
	Improvement       *raftMeasure
	SessionID         string     `json:"reward_session_id"`
	ModelVersionID    string     `json:"model_version_id"`
	ParentID          string     `json:"parent_id"`
	NextID            string     `json:"next_round_id"`
	Stopped           string     `json:"stopped_reason"`
	Spent             money.Nano `json:"spent_usd"`
	Error             *struct{ Code, Message string }
}

type raftMeasure struct {
	Mean, Lower, Upper float64
	N                  int64
}

var aWorkspace = regexp.MustCompile(`ws_[0-9a-z]{20,}`)

// raft starts rounds as the dashboard does.
func (g *grpoServer) raft(t *testing.T, body object) (made raftRound) {
	t.Helper()
	g.awaitWorker(t)
	status, text, cookie := g.server.dashboard(t, "", "POST", "/session/link", `{"token":"`+linkText.FindStringSubmatch(g.server.link(t))[2]+`"}`)
	if status != http.StatusOK {
		t.Fatalf("sign in: %d %s", status, text)
	}
	asked, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	status, text, _ = g.server.dashboard(t, cookie, "POST", "/w/"+aWorkspace.FindString(text)+"/raft/rounds", string(asked))
	if status != http.StatusCreated || json.Unmarshal([]byte(text), &made) != nil {
		t.Fatalf("%d %s", status, text)
	}
	return made
}

// untilRound waits for something of a round, which may not fail.
func (g *grpoServer) untilRound(t *testing.T, id, what string, holds func(raftRound) bool) (r raftRound) {
	t.Helper()
	eventually(t, what, func() bool {
		r = raftRound{}
		if g.caller().get(t, "/v1/raft/rounds/"+id, &r); r.Status == "FAILED" {
			t.Fatalf("%+v %+v", r, r.Error)
		}
		return holds(r)
	})
	return r
}

// A model is trained on the best of its own answers for three rounds, while worker and server are killed: the reward of
// prompts that it was never trained on rises in each, provably. No answer is paid for twice, and `ledger verify` passes.
func TestRoundsOfRAFTRaiseTheReward(t *testing.T) {
	t.Parallel()
	g := newGRPOServer(t, newInstance(t, secret.Text{}), 400)
	judge := g.judge(t, "mock/letters")
	address := g.server.address()
	w := g.worker(t)
	made := g.raft(t, object{
		"baseModel": "tiny/bigram", "datasetId": g.dataset, "criterionId": judge, "samplesPerPrompt": 8, "minGrade": 0.1,
		"maxCompletionTokens": 6, "budgetUsd": 80, "rounds": 3, "seed": 7, "hyperparameters": object{"epochs": 10},
	})
	g.untilRound(t, made.ID, "scoring", func(now raftRound) bool { return now.Stage != "sampling" })
	g.server.kill()
	g.server = g.serve(t, append(g.flags, "--training-prices", "cpu=36", "--listen", hostOf(t, address))...)
	g.untilRound(t, made.ID, "training", func(now raftRound) bool { return now.Stage != "scoring" })
	w.kill()
	g.mustAdmin(t, nil, "worker", "revoke", w.id) // so that nobody waits for its lease to run out
	g.worker(t)
	id, before, rounds := made.ID, "", []raftRound{}
	for n := range int64(3) {
		r := g.untilRound(t, id, "the end of a round", func(now raftRound) bool {
			return now.Status == "SUCCEEDED" && (now.NextID != "" || now.Stopped != "" || now.Round == 3)
		})
		if r.Round != n+1 || r.ParentID != before || r.Before.N != 80 || r.After.N != 80 || r.Improvement.Lower <= 0 {
			t.Fatalf("%+v: before %+v, after %+v, improvement %+v", r, r.Before, r.After, r.Improvement)
		}
		t.Logf("round %d: %d accepted, reward %.3f before and %.3f after: %+.3f (%+.3f to %+.3f), $%s", r.Round, r.Accepted,
			r.Before.Mean, r.After.Mean, r.Improvement.Mean, r.Improvement.Lower, r.Improvement.Upper, r.Spent)
		rounds = append(rounds, r)
		id, before = r.NextID, r.ModelVersionID
	}
	for _, r := range rounds {
		var session struct{ Scored int }
		g.caller().call(t, http.MethodGet, "/v1/reward/sessions/"+r.SessionID, nil, http.StatusOK, &session)
		// What was judged before, of the same prompt and the same answer, is not asked again.
		rows, sum := g.spentFor(t, "default", r.SessionID)
		if g.caller().get(t, "/v1/raft/rounds/"+r.ID, &r); rows > session.Scored || rows == 0 || sum > r.Spent {
			t.Errorf("%d charges of $%s for %d samples, and $%s spent", rows, sum, session.Scored, r.Spent)
		}
	}
	g.verifyLedger(t)
}
