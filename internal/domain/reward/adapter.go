package reward

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
)

// The adapters speak the protocols of trainers that cannot send headers. Their protocols have no step and no ids: a
// step may be given in the query, and an item's id follows from its content. They have no word for a missing reward
// either, and would take any number for one. So an item without a reward is refused: with 503 where another try may
// help, which both trainers make, and otherwise with what ends the run.

// defaultStep is the step of an adapter's items, unless its address has another one.
const defaultStep = "default"

// An OpenRLHFRequest is what OpenRLHF sends: the whole texts, their prompts, and labels.
type OpenRLHFRequest struct {
	Query   []string         `json:"query" nullable:"false" doc:"Prompts with their completions"`
	Prompts []string         `json:"prompts" nullable:"false"`
	Labels  []jsontext.Value `json:"labels,omitempty"`
}

// OpenRLHFScores is what OpenRLHF reads.
type OpenRLHFScores struct {
	Rewards   []float64          `json:"rewards" nullable:"false"`
	Scores    []float64          `json:"scores" nullable:"false" doc:"The rewards again, 0 to 1"`
	ExtraLogs map[string]float64 `json:"extra_logs" nullable:"false"`
}

type openRLHFCall struct {
	Token string `path:"token"`
	Step  string `query:"step" doc:"The step of the items; default is the step named default"`
	Body  OpenRLHFRequest
}

// A SlimeRequest is what slime sends. The answer is the reward itself.
type SlimeRequest struct {
	Prompt   jsontext.Value `json:"prompt" doc:"A text, or messages"`
	Response string         `json:"response"`
	Label    jsontext.Value `json:"label,omitempty"`
}

type slimeCall struct {
	Token string `path:"token"`
	Step  string `query:"step" doc:"The step of the items; default is the step named default"`
	Body  SlimeRequest
}

// serveOpenRLHF answers POST /rewards/v1/{token}/openrlhf.
func (s *Store) serveOpenRLHF(w http.ResponseWriter, r *http.Request) error {
	var in OpenRLHFRequest
	return s.serveAdapter(w, r, &in, in.items, func(rewards []float64) any {
		return OpenRLHFScores{Rewards: rewards, Scores: rewards, ExtraLogs: map[string]float64{}}
	})
}

// items returns what is scored. A completion is what follows the prompt.
func (q *OpenRLHFRequest) items() ([]item, error) {
	switch {
	case len(q.Query) == 0 || len(q.Query) > MaxItems:
		return nil, fault.Invalid("query", fmt.Sprintf("must be 1 to %d texts", MaxItems))
	case len(q.Prompts) != len(q.Query):
		return nil, fault.Invalid("prompts", "must be as many as query")
	case len(q.Labels) > 0 && len(q.Labels) != len(q.Query):
		return nil, fault.Invalid("labels", "must be as many as query")
	}
	all := make([]item, len(q.Query))
	for i, text := range q.Query {
		completion, err := json.Marshal(strings.TrimPrefix(text, q.Prompts[i]))
		if err != nil {
			return nil, fault.Invalid("query", "is not valid text")
		}
		one := ScoreItem{Prompt: &q.Prompts[i], Completion: completion}
		if len(q.Labels) > 0 {
			one.Label = labelText(q.Labels[i])
		}
		if all[i], err = one.named(fmt.Sprintf("query[%d]", i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// serveSlime answers POST /rewards/v1/{token}/slime.
func (s *Store) serveSlime(w http.ResponseWriter, r *http.Request) error {
	var in SlimeRequest
	return s.serveAdapter(w, r, &in, in.items, func(rewards []float64) any { return rewards[0] })
}

func (q *SlimeRequest) items() ([]item, error) {
	completion, err := json.Marshal(q.Response)
	if err != nil {
		return nil, fault.Invalid("response", "is not valid text")
	}
	one := ScoreItem{Completion: completion, Label: labelText(q.Label)}
	switch q.Prompt.Kind() {
	case '"':
		err = json.Unmarshal(q.Prompt, &one.Prompt)
	case '[':
		err = json.Unmarshal(q.Prompt, &one.Messages)
	default:
		return nil, fault.Invalid("prompt", "must be a text or messages")
	}
	if err != nil {
		return nil, fault.Invalid("prompt", "must be a text or messages")
	}
	made, err := one.named("response")
	return []item{made}, err
}

// named checks an item that has no id of its own: its id follows from its content. field is where it stands.
func (s *ScoreItem) named(field string) (item, error) {
	s.ID = "-"
	made, err := s.check(field+".", false)
	made.ID = hex.EncodeToString(made.content[:16])
	return made, err
}

// labelText returns a label as text: trainers send whatever their data sets have.
func labelText(v jsontext.Value) string {
	var text string
	switch kind := v.Kind(); {
	case kind == jsontext.KindInvalid || kind == 'n':
		return ""
	case kind == '"' && json.Unmarshal(v, &text) == nil:
		return text
	}
	return string(v)
}

// serveAdapter scores what a trainer sent to an adapter, and answers in its form.
func (s *Store) serveAdapter(
	w http.ResponseWriter, r *http.Request, in any, items func() ([]item, error), answer func([]float64) any,
) error {
	ctx := r.Context()
	edge.SkipAccessLog(ctx)
	ws, id, err := s.byToken(ctx, r.PathValue("token"))
	if err != nil {
		if fault.From(err).Kind == fault.InvalidKey {
			err = edge.Unidentified(r, err)
		}
		return err
	}
	if err := edge.Identify(r, tenant.Caller{Workspace: ws}); err != nil {
		return err
	}
	held, err := s.readScoring(r, edge.Caller(r.Context()).Workspace, in)
	if err != nil {
		return err
	}
	name := batchName{ws, id, cmp.Or(r.URL.Query().Get("step"), defaultStep)}
	sent, err := items()
	if err == nil {
		err = checkName("step", name.step)
	}
	if err != nil {
		held.release()
		return err
	}
	scores, err := s.batches.score(ctx, s, name, sent, held.release)
	if err != nil {
		return err
	}
	rewards := make([]float64, len(scores))
	for i, one := range scores {
		if one.Reward == nil {
			return unrewarded(&one)
		}
		rewards[i] = *one.Reward
	}
	return send(w, answer(rewards))
}

// unrewarded is the refusal of an item without a reward.
func unrewarded(s *ItemScore) error {
	switch s.Flags[0] {
	case FlagOverBudget:
		return fault.SessionOverbudget.New("the budget of the reward session is spent")
	case FlagStopped:
		return fault.SessionNotActive.New("the reward session has ended")
	case FlagJudgeFailed:
		return fault.Unavailable.New("a judge gave no verdict: there is no reward").In(time.Second)
	default:
		return fault.Unavailable.New("there is no reward yet: send it again").In(time.Second)
	}
}
