package train

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

const (
	kind  = "fine_tuning_job"
	model = "tiny/bigram"
)

// A house is a server with two workspaces that have money, and a worker. Its clock stands until it is moved.
type house struct {
	*Store
	t      *testing.T
	disk   *journaltest.Disk
	poster *wallet.Poster
	funds  *funds.Funds
	folder string
	clock  *atomic.Int64
	worker Worker
	member Membership // nil for the only server
}

var quiet = slog.New(slog.DiscardHandler)

// info is a worker with two GPUs at $3.60 an hour: a second of one costs a tenth of a cent.
var info = Info{Engine: "small", Methods: []string{"sft", "dpo"}, Models: []Base{{ID: model}}, GPUType: "h200", GPUCount: 2}

func each(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		h := &house{t: t, disk: journaltest.NewDisk(), folder: t.TempDir(), clock: new(atomic.Int64)}
		h.clock.Store(int64(clock.Now()))
		h.open(d)
		wallets := wallet.NewStore(d, h.Feed, h.funds)
		for _, ws := range []tenant.ID{dbtest.Mine, dbtest.Theirs} {
			if _, err := wallets.TopUp(t.Context(), ws, tenant.Operator, 100*money.Dollar, ""); err != nil {
				t.Fatal(err)
			}
		}
		made, _, err := h.CreateWorker(t.Context(), tenant.Operator, "", "gpu-1")
		if err != nil {
			t.Fatal(err)
		}
		h.worker = made
		test(t, h)
	})
}

// open starts a server on the disk.
func (h *house) open(d *db.DB) {
	h.t.Helper()
	j, err := journal.Open(h.disk)
	if err != nil {
		h.t.Fatal(err)
	}
	h.funds = funds.New()
	h.poster = wallet.NewPoster(d, j, h.funds, quiet)
	if _, err := h.poster.Recover(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	changes := feed.New(d, quiet, h.poster.Sources())
	if err := changes.Fill(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); changes.Run(ctx) }()
	h.t.Cleanup(func() { cancel(); <-done })
	files, err := artifact.OpenFolder(h.folder)
	if err != nil {
		h.t.Fatal(err)
	}
	none := func(money.Nano) {}
	h.Store = NewStore(Config{
		DB: d, Feed: changes, Holds: h.poster.Holds, Till: till.New(h.funds, j, quiet, none, none), Drain: h.poster.Drain,
		Artifacts: artifact.NewStore(d, files), Bounds: edge.NewBounds(), Log: quiet, Member: h.member,
		Prices: Prices{"h200": 36 * money.Dollar / 10, "cpu": 0},
	})
	h.now = func() clock.Time { return clock.Time(h.clock.Load()) }
}

// restart kills the server, and starts the next one on what it left.
func (h *house) restart() {
	h.t.Helper()
	h.disk = h.disk.Crash()
	h.open(h.DB)
	if err := h.extendLeases(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) pass(d time.Duration) { h.clock.Add(d.Microseconds()) }

// create queues a run of Mine with a budget.
func (h *house) create(id string, budget money.Nano) {
	h.t.Helper()
	if err := h.createFor(dbtest.Mine, id, budget); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) createFor(ws tenant.ID, id string, budget money.Nano) error {
	return h.Feed.Change(h.t.Context(), func(tx *db.Tx) error {
		_, err := h.Create(h.t.Context(), tx, ws, dbtest.Ann, New{
			ID: id, Kind: kind, Method: "sft", BaseModel: model, Spec: Spec{Inputs: []Input{}}, GPUCount: 2, Budget: budget,
			TotalSteps: 100, Status: Queued,
		})
		return err
	})
}

// lease takes the next run for the worker.
func (h *house) take() *Lease {
	h.t.Helper()
	lease, err := h.lease(h.t.Context(), h.worker, info)
	if err != nil {
		h.t.Fatal(err)
	}
	return lease
}

func (l *Lease) hand() LeaseRef { return LeaseRef{l.Run, l.Attempt, l.Fence} }

// beat sends a heartbeat.
func (h *house) beat(l *Lease, number int64) Order {
	h.t.Helper()
	order, err := h.Heartbeat(h.t.Context(), h.worker, l.hand(), Beat{Number: number, Step: number, TotalSteps: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	return order
}

// train sends heartbeats for a time.
func (h *house) train(l *Lease, first, beats int64) (last Order) {
	h.t.Helper()
	for n := range beats {
		last = h.beat(l, first+n)
		h.pass(beatEvery)
	}
	return last
}

// upload stores a file as a worker does.
func (h *house) upload(ws tenant.ID, text string) artifact.File {
	h.t.Helper()
	f := artifact.File{Digest: artifact.DigestOf([]byte(text)), Bytes: int64(len(text))}
	if err := h.Artifacts.Put(h.t.Context(), ws, f, strings.NewReader(text)); err != nil {
		h.t.Fatal(err)
	}
	return f
}

// save commits a checkpoint with one file.
func (h *house) save(l *Lease, step int64, text string) {
	h.t.Helper()
	in := Saved{Step: step, Files: []Member{{"model.bin", h.upload(dbtest.Mine, text)}}, Metrics: map[string]float64{"loss": 1}}
	if _, err := h.Save(h.t.Context(), h.worker, l.hand(), in); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) run(id string) Run {
	h.t.Helper()
	r, err := h.Find(h.t.Context(), h.DB.In(dbtest.Mine), kind, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *house) wantStatus(id string, want Status) {
	h.t.Helper()
	if r := h.run(id); r.Status != want {
		h.t.Errorf("%s is %s (%s %s), want %s", id, r.Status, r.ErrorCode, r.ErrorMessage, want)
	}
}

func (h *house) tick() {
	h.t.Helper()
	for _, do := range []func(context.Context) error{h.loseExpired, h.bill} {
		if err := do(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
}

// wantSpent checks what a run has spent and what the wallet of Mine has free, and that the ledger proves.
func (h *house) wantSpent(id string, spent, free money.Nano) {
	h.t.Helper()
	got, err := h.Holds.Spent(h.t.Context(), dbtest.Mine, id)
	if err != nil || got != spent {
		h.t.Errorf("%s has spent %s, want %s: %v", id, got, spent, err)
	}
	if got := wallettest.Free(h.t, wallet.NewStore(h.DB, nil, h.funds), dbtest.Mine); got != free {
		h.t.Errorf("the wallet has %s free, want %s", got, free)
	}
	rows, err := db.Query[string](h.t.Context(), h.DB.In(dbtest.Mine),
		`SELECT request_id FROM usage_rows WHERE workspace_id = $1 ORDER BY request_id`)
	if err != nil {
		h.t.Fatal(err)
	}
	if unique := slices.Compact(slices.Clone(rows)); len(unique) != len(rows) {
		h.t.Errorf("an attempt was charged twice: %v", rows)
	}
}

func wantFault(t *testing.T, err error, want fault.Kind, part string) {
	t.Helper()
	if f := fault.From(err); err == nil || f.Kind != want || !strings.Contains(f.Message, part) {
		t.Errorf("want %s with %q, got %v", want.Name(), part, err)
	}
}

func reader(text string) *bytes.Reader { return bytes.NewReader([]byte(text)) }
