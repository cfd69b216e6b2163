package label

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

var ann = dbtest.Ann

// A fixture has the labels of one database with two workspaces, with fake logs and judges.
type fixture struct {
	*Store
	db     *db.DB
	logs   *fakeLogs
	judges *fakeJudges
}

func each(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := fixture{db: d, logs: &fakeLogs{requests: map[string]logged{}}, judges: &fakeJudges{said: map[string]judge.Verdict{}}}
		f.Store = NewStore(d, f.logs, f.judges)
		dbtest.AddWorkspaces(t, d, mine, theirs)
		test(t, f)
	})
}

var workspaces atomic.Int64

// fresh adds a workspace without labels.
func (f fixture) fresh(t dbtest.T) tenant.ID {
	ws := tenant.ID(fmt.Sprintf("ws_%d", workspaces.Add(1)))
	dbtest.AddWorkspaces(t, f.db, ws)
	return ws
}

// fakeLogs are logs in memory.
type fakeLogs struct {
	closed   bool
	requests map[string]logged
}

type logged struct {
	ws    tenant.ID
	step  judge.Step
	trace string
}

func (s *fakeLogs) Open(context.Context, tenant.ID) error {
	if s.closed {
		return fault.LoggingDisabled.New("logging is off")
	}
	return nil
}

func (s *fakeLogs) Request(_ context.Context, ws tenant.ID, requestID string) (judge.Step, string, error) {
	if found, ok := s.requests[requestID]; ok && found.ws == ws {
		return found.step, found.trace, nil
	}
	return judge.Step{}, "", fault.NotFound("logged request", requestID)
}

func (s *fakeLogs) Steps(_ context.Context, ws tenant.ID, trace string) (all []judge.Step, _ error) {
	for i := range 100 {
		if found, ok := s.requests[fmt.Sprintf("req_%s_%d", trace, i)]; ok && found.ws == ws {
			all = append(all, found.step)
		}
	}
	if all == nil {
		return nil, fault.NotFound("trace", trace)
	}
	return all, nil
}

// fakeJudges has two criteria in every workspace, says something of items, and records the changes that it is told of.
type fakeJudges struct {
	said    map[string]judge.Verdict
	changes []Change
	refuses error
}

func (b *fakeJudges) Exists(_ context.Context, _ db.Scoped, criterionID string) error {
	if criterionID == "crit_1" || criterionID == "crit_2" {
		return nil
	}
	return fault.NotFound("criterion", criterionID)
}

func (b *fakeJudges) Verdict(_ context.Context, _ db.Scoped, _ string, item []byte) (judge.Verdict, error) {
	return b.said[string(item)], nil
}

func (b *fakeJudges) LabelChanged(_ context.Context, _ *db.Tx, _ tenant.ID, c Change) error {
	b.changes = append(b.changes, c)
	return b.refuses
}

// talk makes a conversation. The user and the assistant speak in turns.
func talk(said ...string) judge.Step {
	all := []map[string]string{{"role": "system", "content": "You help."}}
	for i, text := range said {
		all = append(all, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": text})
	}
	if len(said)%2 != 0 {
		panic("a conversation ends with an answer")
	}
	write := func(v any) []byte {
		text, err := json.Marshal(v, json.Deterministic(true))
		if err != nil {
			panic(err)
		}
		return text
	}
	return judge.Step{Messages: write(all[:len(all)-1]), Response: write(all[len(all)-1])}
}

// inline makes a label of a conversation in the request.
func inline(verdict judge.Verdict, said ...string) New {
	step := talk(said...)
	return New{Messages: step.Messages, Response: step.Response, Verdict: verdict, CriterionID: "crit_1"}
}

// log adds a logged exchange.
func (f fixture) log(requestID, trace string, said ...string) {
	f.logs.requests[requestID] = logged{mine, talk(said...), trace}
}

func at(i int) string { return fmt.Sprintf("labels[%d].", i) }

func (f fixture) make(t dbtest.T, ws tenant.ID, all ...New) []Label {
	t.Helper()
	made, err := f.Create(t.Context(), ws, ann, all, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(all) {
		t.Fatalf("%d labels of %d", len(made), len(all))
	}
	return made
}

func (f fixture) get(t *testing.T, id string) Label {
	t.Helper()
	l, err := f.Get(t.Context(), mine, id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// item returns what identifies the item of a label.
func (f fixture) item(t dbtest.T, labelID string) []byte {
	t.Helper()
	hash, err := db.One[[]byte](t.Context(), f.db.In(mine), `SELECT item FROM labels WHERE workspace_id = $1 AND id = $2`, labelID)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
