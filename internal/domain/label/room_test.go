package label

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
)

var ann = tenant.Caller{Workspace: mine, User: "usr_ann", Key: "key_1"}.Actor()

// A room is the labels of one storage with two workspaces, with logs and judges of the tests' own.
type room struct {
	*Store
	db     *db.DB
	logs   *shelf
	judges *bar
}

func each(t *testing.T, test func(t *testing.T, r room)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := room{db: d, logs: &shelf{requests: map[string]logged{}}, judges: &bar{said: map[string]judge.Verdict{}}}
		r.Store = NewStore(d, r.logs, r.judges)
		r.settle(t, mine)
		r.settle(t, theirs)
		test(t, r)
	})
}

var workspaces atomic.Int64

// fresh is a workspace that nothing was graded in.
func (r room) fresh(t failing) tenant.ID {
	ws := tenant.ID(fmt.Sprintf("ws_%d", workspaces.Add(1)))
	r.settle(t, ws)
	return ws
}

// failing is a test, or a try of a property.
type failing interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

func (r room) settle(t failing, ws tenant.ID) {
	t.Helper()
	if _, err := db.Exec(t.Context(), r.db.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
		t.Fatal(err)
	}
}

// A shelf is logs.
type shelf struct {
	closed   bool
	requests map[string]logged
}

type logged struct {
	ws    tenant.ID
	step  judge.Step
	trace string
}

func (s *shelf) Open(context.Context, tenant.ID) error {
	if s.closed {
		return fault.LoggingDisabled.New("logging is off")
	}
	return nil
}

func (s *shelf) Request(_ context.Context, ws tenant.ID, requestID string) (judge.Step, string, error) {
	if found, ok := s.requests[requestID]; ok && found.ws == ws {
		return found.step, found.trace, nil
	}
	return judge.Step{}, "", fault.NotFound("logged request", requestID)
}

func (s *shelf) Steps(_ context.Context, ws tenant.ID, trace string) (all []judge.Step, _ error) {
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

// A bar is judges: it knows two criteria of either workspace, and remembers what it was told.
type bar struct {
	said    map[string]judge.Verdict
	changes []Change
	refuses error
}

func (b *bar) Exists(_ context.Context, _ db.Scoped, criterionID string) error {
	if criterionID == "crit_1" || criterionID == "crit_2" {
		return nil
	}
	return fault.NotFound("criterion", criterionID)
}

func (b *bar) Verdict(_ context.Context, _ db.Scoped, labelID string) (judge.Verdict, error) {
	return b.said[labelID], nil
}

func (b *bar) Changed(_ context.Context, _ *db.Tx, _ tenant.ID, c Change) error {
	b.changes = append(b.changes, c)
	return b.refuses
}

// talk is a conversation: what the user and the assistant say, by turns.
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

// along is a label of a conversation that is sent along.
func along(verdict judge.Verdict, said ...string) New {
	step := talk(said...)
	return New{Messages: step.Messages, Response: step.Response, Verdict: verdict, CriterionID: "crit_1"}
}

// log puts an exchange on the shelf.
func (r room) log(requestID, trace string, said ...string) {
	r.logs.requests[requestID] = logged{mine, talk(said...), trace}
}

func at(i int) string { return fmt.Sprintf("labels[%d].", i) }

func (r room) make(t failing, ws tenant.ID, all ...New) []Label {
	t.Helper()
	made, err := r.Create(t.Context(), ws, ann, all, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(all) {
		t.Fatalf("%d labels of %d", len(made), len(all))
	}
	return made
}

func (r room) get(t *testing.T, id string) Label {
	t.Helper()
	l, err := r.Get(t.Context(), mine, id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (r room) rows(t *testing.T, table string) int {
	t.Helper()
	n, err := db.One[int](t.Context(), r.db.Across("test"), `SELECT COUNT(*) FROM `+table)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// refused checks that an error is a refusal of that status whose message has all the words.
func refused(t *testing.T, err error, status int, words ...string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.Status != status {
		t.Errorf("%v, want a refusal with %d", err, status)
		return
	}
	for _, word := range words {
		if !strings.Contains(f.Message, word) {
			t.Errorf("%q does not say %q", f.Message, word)
		}
	}
}
