package endpoint

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/train"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/live"
	"sovereign/internal/plane/engines"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

var quiet = slog.New(slog.DiscardHandler)

// A house is a server with two workspaces that have money, in a world of engines. An hour of its GPU costs $3.60: a
// second costs a tenth of a cent.
type house struct {
	*Store
	*world
	t       *testing.T
	disk    *journaltest.Disk
	poster  *wallet.Poster
	funds   *funds.Funds
	wallets *wallet.Store
	shut    func()
	folders *fileStore
	credit  money.Nano     // that each workspace had
	member  serving.Member // nil for the only server
}

// A fileStore has the files of versions, unless it is broken.
type fileStore struct {
	mu     sync.Mutex
	broken bool
	held   int
}

func (s *fileStore) Get(_ context.Context, _ tenant.ID, versionID string) (string, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return "", nil, errors.New("the disk is full")
	}
	s.held++
	return "/models/" + versionID, func() { s.held-- }, nil
}

const second = money.Dollar / 1000

func each(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, newHouse(t, d, 100*money.Dollar)) })
}

func newHouse(t *testing.T, d *db.DB, credit money.Nano) *house {
	t.Helper()
	dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
	h := &house{t: t, world: newWorld(), disk: journaltest.NewDisk(), credit: credit, folders: &fileStore{}}
	h.open(d)
	for _, ws := range []tenant.ID{dbtest.Mine, dbtest.Theirs} {
		_, err := h.wallets.TopUp(t.Context(), ws, tenant.Operator, credit, "")
		h.ok(err)
	}
	return h
}

func (h *house) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// open starts a server on the disk.
func (h *house) open(d *db.DB) {
	h.t.Helper()
	j, err := journal.Open(h.disk)
	h.ok(err)
	h.funds = funds.New()
	h.poster = wallet.NewPoster(d, j, h.funds, quiet)
	_, err = h.poster.Recover(h.t.Context())
	h.ok(err)
	files, err := artifact.OpenFolder(h.t.TempDir())
	h.ok(err)
	none := func(money.Nano) {}
	changes := feed.New(d, quiet, h.poster.Sources())
	stored := artifact.NewStore(d, files)
	registry := engines.NewRegistry()
	h.Store = NewStore(Config{
		DB: d, Feed: changes, Holds: h.poster.Holds, Till: till.New(h.funds, j, quiet, none, none), Artifacts: stored,
		Drain: func(ctx context.Context) error {
			h.interrupt()
			defer h.interrupt()
			return h.poster.Drain(ctx)
		},
		Versions: modelversion.NewStore(d, stored, nil), Prices: train.Prices{"h200": 36 * money.Dollar / 10, "cpu": 0},
		Folders: h.folders, Own: live.NewOwnModels(), Registry: registry, Backend: h.world, Log: quiet,
		Groups: serving.NewGroups(serving.GroupsConfig{DB: d, Member: h.member, Registry: registry, Log: quiet}),
		Choose: func(_, gpuType string) (string, string, error) {
			if gpuType == "" {
				gpuType = "h200"
			}
			return "small", gpuType, nil
		},
	})
	h.Store.now = h.world.now
	changes.Register(Module(h.Store, Deps{ColdStart: time.Minute}).Publishers)
	h.ok(changes.Fill(h.t.Context()))
	h.wallets = wallet.NewStore(d, changes, h.funds)
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); changes.Run(ctx) }()
	h.shut = func() { cancel(); <-done }
	h.t.Cleanup(h.shut)
}

// restart kills the server, and starts the next one on what it left.
func (h *house) restart() {
	h.t.Helper()
	h.shut()
	h.disk = h.disk.Crash()
	h.open(h.DB)
}

// live lets seconds go by, and looks at the endpoints after each of them.
func (h *house) live(d time.Duration) {
	h.t.Helper()
	for ; d > 0; d -= time.Second {
		h.pass(min(d, time.Second))
		h.ok(h.reconcile(h.t.Context()))
	}
}

// create makes an endpoint of Mine.
func (h *house) create(in Request) Endpoint {
	h.t.Helper()
	if in.Name == "" {
		in.Name = "support"
	}
	if in.BaseModel == "" {
		in.BaseModel = "tiny/bigram"
	}
	made, err := h.Create(h.t.Context(), dbtest.Mine, dbtest.Ann, in)
	h.ok(err)
	return made
}

func (h *house) get(id string) Endpoint {
	h.t.Helper()
	e, err := h.Get(h.t.Context(), dbtest.Mine, id)
	h.ok(err)
	return e
}

func (h *house) want(id string, status Status, replicas int64) {
	h.t.Helper()
	if e := h.get(id); e.Status != status || e.Replicas != replicas {
		h.t.Fatalf("%s with %d replicas (%+v), want %s with %d", e.Status, e.Replicas, e.Error, status, replicas)
	}
}

// wantSpent checks what an endpoint has spent and what the wallet of Mine has free.
func (h *house) wantSpent(id string, spent, free money.Nano) {
	h.t.Helper()
	if e := h.get(id); e.Spent != spent {
		h.t.Errorf("has spent %s, want %s", e.Spent, spent)
	}
	if got := wallettest.Free(h.t, h.wallets, dbtest.Mine); got != free {
		h.t.Errorf("the wallet has %s free, want %s", got, free)
	}
}

// billed returns the seconds of each life in the ledger, and fails when a charge is there twice.
func (h *house) billed() map[string]int64 {
	h.t.Helper()
	type row struct {
		RequestID  string
		GPUSeconds int64 `db:"gpu_seconds"`
	}
	rows, err := db.Query[row](h.t.Context(), h.DB.In(dbtest.Mine),
		`SELECT request_id, gpu_seconds FROM usage_rows WHERE workspace_id = $1 ORDER BY request_id`)
	h.ok(err)
	all, seen := map[string]int64{}, map[string]bool{}
	for _, r := range rows {
		if seen[r.RequestID] {
			h.t.Errorf("%s was charged twice", r.RequestID)
		}
		seen[r.RequestID] = true
		all[r.RequestID[:strings.LastIndexByte(r.RequestID, '.')]] += r.GPUSeconds
	}
	return all
}

// alive returns the engines that really run.
func (h *house) alive() (n int) {
	for _, e := range h.lives {
		n += 1 - rank(e.end == 0)
	}
	return n
}

// since returns whole seconds between two moments.
func since(from, to clock.Time) int64 { return int64(to.Sub(from) / time.Second) }

func wantFault(t *testing.T, err error, want fault.Kind, part string) {
	t.Helper()
	if f := fault.From(err); err == nil || f.Kind != want || !strings.Contains(f.Message, part) {
		t.Errorf("want %s with %q, got %v", want.Name(), part, err)
	}
}

func names(all []*live.Model) (ids []string) {
	for _, m := range all {
		ids = append(ids, m.ID)
	}
	return slices.Clip(ids)
}
