package review

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

// A fixture is a store with fake logs, labels and time, on a database with two workspaces.
type fixture struct {
	*Store
	contents *fakeContents
	labels   *fakeLabels
	mu       *sync.Mutex
	now      *clock.Time
}

func each(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, mine, theirs)
		now := clock.Time(1_000_000_000)
		f := fixture{contents: &fakeContents{logged: map[string][]judge.Step{}}, labels: newFakeLabels(t, d), mu: new(sync.Mutex), now: &now}
		f.Store = NewStore(Config{
			DB: d, Labels: f.labels, Contents: f.contents, People: people{d},
			Now: func() clock.Time {
				f.mu.Lock()
				defer f.mu.Unlock()
				now++
				return now
			},
		})
		test(t, f)
	})
}

// wait lets time pass.
func (f fixture) wait(minutes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.now += clock.Time(minutes * 60_000_000)
}

// person is a caller with a session.
func person(ws tenant.ID, name string, role tenant.Role) tenant.Caller {
	return tenant.Caller{Workspace: ws, User: tenant.UserID("usr_" + name), Session: "ses_" + tenant.SessionID(name), Role: role}
}

var (
	owner    = person(mine, "owner", tenant.Owner)
	member   = person(mine, "member", tenant.Member)
	expert   = person(mine, "expert", "")
	expert2  = person(mine, "expert2", "")
	stranger = person(theirs, "stranger", tenant.Owner)
)

// queue makes a queue with n logged items, on which some people have a grant.
func (f fixture) queue(t dbtest.T, graders, n int, grants ...tenant.Caller) Queue {
	t.Helper()
	q, err := f.Create(t.Context(), owner, NewQueue{Name: "q", GradersPerItem: graders, Source: QueueSource{Kind: fromLogs}})
	if err != nil {
		t.Fatal(err)
	}
	items := make([]itemRecord, n)
	for i := range items {
		requestID := fmt.Sprintf("req_%s_%d", q.ID, i)
		f.contents.log(requestID, fmt.Sprintf("<script>alert(%d)</script>", i))
		items[i] = itemRecord{Ref: ofRequest + requestID, Reason: "why", Judge: judge.Fail, Grade: 0.25, Critique: "the judge's words"}
	}
	if _, err := f.DB.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := f.add(t.Context(), tx, mine, q.ID, items)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	f.filled(t, q.ID)
	for _, who := range grants {
		if _, err := f.Grant(t.Context(), owner, q.ID, string(who.User)+"@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// filled ends the jobs that fill a queue.
func (f fixture) filled(t dbtest.T, queueID string) {
	t.Helper()
	if _, err := db.Exec(t.Context(), f.DB.In(mine), `
		UPDATE jobs SET status = 'CANCELLED', finished_at = 1 WHERE workspace_id = $1 AND id IN (
			SELECT id FROM review_fills WHERE workspace_id = $1 AND queue_id = $2)`, queueID); err != nil {
		t.Fatal(err)
	}
}

func (f fixture) claim(t dbtest.T, who tenant.Caller, queueID string) QueueItem {
	t.Helper()
	o, err := f.Claim(t.Context(), who, queueID)
	if err != nil {
		t.Fatal(err)
	}
	if o.Item == nil {
		t.Fatalf("nothing is offered: %+v", o)
	}
	return *o.Item
}

func (f fixture) grade(t dbtest.T, who tenant.Caller, i QueueItem, v judge.Verdict) QueueItem {
	t.Helper()
	after, err := f.Grade(t.Context(), who, i.QueueID, i.ID, NewGrade{Claim: i.Claim.ID, Verdict: v, Critique: "because"})
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// people creates users whose id is the address without its domain.
type people struct{ db *db.DB }

func (p people) Person(ctx context.Context, email string) (tenant.UserID, error) {
	user := tenant.UserID(strings.TrimSuffix(email, "@example.test"))
	_, err := db.Exec(ctx, p.db.Across("test"), `INSERT INTO users (id, email, created_at) VALUES ($1, $2, 1) ON CONFLICT (id) DO NOTHING`, user, email)
	return user, err
}

// fakeContents are logs in memory.
type fakeContents struct {
	mu     sync.Mutex
	logged map[string][]judge.Step
}

func (c *fakeContents) log(name string, said ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range said {
		c.logged[name] = append(c.logged[name], judge.Step{
			Messages: fmt.Appendf(nil, `[{"role":"user","content":%q}]`, text), Response: fmt.Appendf(nil, `{"role":"assistant","content":%q}`, text),
		})
	}
}

func (c *fakeContents) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.logged, name)
}

func (c *fakeContents) Open(context.Context, tenant.ID) error { return nil }

func (c *fakeContents) Request(_ context.Context, _ tenant.ID, requestID string) (judge.Step, string, error) {
	steps, err := c.Steps(context.Background(), mine, requestID)
	if err != nil {
		return judge.Step{}, "", err
	}
	return steps[0], "", nil
}

func (c *fakeContents) Steps(_ context.Context, _ tenant.ID, trace string) ([]judge.Step, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if steps := c.logged[trace]; steps != nil {
		return steps, nil
	}
	return nil, fault.NotFound("logged request", trace)
}

// fakeLabels are labels in a table of their own, one for each person and request.
type fakeLabels struct {
	db       *db.DB
	mu       sync.Mutex
	prepared map[*label.Prepared]label.New
}

func newFakeLabels(t *testing.T, d *db.DB) *fakeLabels {
	t.Helper()
	if _, err := db.Exec(t.Context(), d.Across("test"), `
		CREATE TABLE fake_labels (workspace_id TEXT, id TEXT, request_id TEXT, author TEXT, verdict TEXT,
			PRIMARY KEY (workspace_id, request_id, author))`); err != nil {
		t.Fatal(err)
	}
	return &fakeLabels{db: d, prepared: map[*label.Prepared]label.New{}}
}

func (l *fakeLabels) Get(_ context.Context, _ tenant.ID, labelID string) (label.Label, error) {
	return label.Label{}, fault.NotFound("label", labelID)
}

func (l *fakeLabels) Prepare(_ context.Context, _ tenant.ID, n label.New) (*label.Prepared, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := new(label.Prepared)
	l.prepared[p] = n
	return p, nil
}

func (l *fakeLabels) PrepareAgain(ctx context.Context, ws tenant.ID, labelID string, n label.New) (*label.Prepared, error) {
	return nil, fault.NotFound("label", labelID)
}

func (l *fakeLabels) PutReview(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, p *label.Prepared) (label.Label, error) {
	l.mu.Lock()
	n := l.prepared[p]
	l.mu.Unlock()
	made := label.Label{ID: id.New("lbl")}
	added, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO fake_labels (workspace_id, id, request_id, author, verdict) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (workspace_id, request_id, author) DO NOTHING`, made.ID, n.RequestID, by.User, n.Verdict)
	if err == nil && added == 0 {
		err = fmt.Errorf("%s has a label by %s already", n.RequestID, by.User)
	}
	return made, err
}

func (l *fakeLabels) TakeBack(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, labelID string) error {
	n, err := db.Exec(ctx, tx.In(ws), `DELETE FROM fake_labels WHERE workspace_id = $1 AND id = $2 AND author = $3`, labelID, by.User)
	if err == nil && n == 0 {
		return fault.NotFound("label", labelID)
	}
	return err
}

// given returns the verdicts by request and author.
func (l *fakeLabels) given(t *testing.T) map[[2]string]judge.Verdict {
	t.Helper()
	type row struct {
		RequestID, Author string
		Verdict           judge.Verdict
	}
	rows, err := db.Query[row](t.Context(), l.db.Across("test"), `SELECT request_id, author, verdict FROM fake_labels`)
	if err != nil {
		t.Fatal(err)
	}
	all := map[[2]string]judge.Verdict{}
	for _, one := range rows {
		all[[2]string{one.RequestID, one.Author}] = one.Verdict
	}
	return all
}
