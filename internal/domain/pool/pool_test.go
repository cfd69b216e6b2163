package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/serving"
	"sovereign/internal/live"
	"sovereign/internal/plane/engines"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A backend runs engines at once, in this process. They answer the calls that load versions.
type backend struct {
	t       *testing.T
	mu      sync.Mutex
	runs    map[string]*serving.Deployment
	lives   int
	crash   bool     // engines end before they are ready
	calls   []string // of the engines
	loaded  []string // by the engine that was asked last
	changed chan struct{}
}

func (b *backend) Apply(_ context.Context, s serving.Spec) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.runs[s.Name]; d != nil {
		return nil
	}
	b.runs[s.Name] = &serving.Deployment{Spec: s}
	b.begin(s.Name)
	return nil
}

// begin starts an engine. The caller holds the lock.
func (b *backend) begin(name string) {
	b.lives++
	b.loaded = nil
	d := b.runs[name]
	r := serving.Replica{ID: fmt.Sprint("life-", b.lives), Phase: serving.Ended, Reason: "out of memory"}
	if !b.crash {
		server := httptest.NewServer(http.HandlerFunc(b.serve))
		b.t.Cleanup(server.Close)
		r = serving.Replica{ID: r.ID, Phase: serving.Ready, BaseURL: server.URL, ReadyAt: 1}
	}
	d.Replicas = append(d.Replicas, r)
}

// replace ends every engine, and starts others.
func (b *backend) replace() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, d := range b.runs {
		for i := range d.Replicas {
			d.Replicas[i].Phase = serving.Ended
		}
		b.begin(name)
	}
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string `json:"lora_name"`
		Path string `json:"lora_path"`
	}
	if r.Method == http.MethodGet && r.ContentLength != 0 { // some servers take it for the next request
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_ = json.UnmarshalRead(r.Body, &body)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, strings.TrimSpace(r.URL.Path+" "+body.Name+" "+body.Path))
	switch r.URL.Path {
	case "/load_lora_adapter":
		b.loaded = append(b.loaded, body.Name)
	case "/unload_lora_adapter":
		b.loaded = slices.DeleteFunc(b.loaded, func(id string) bool { return id == body.Name })
	case "/models":
		var list strings.Builder
		for _, id := range b.loaded {
			list.WriteString(`,{"id":"` + id + `"}`)
		}
		_, _ = fmt.Fprintf(w, `{"data":[{"id":"tiny/bigram"},{"id":"mv_stale"}%s]}`, list.String())
	}
}

func (b *backend) Remove(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, name)
	return nil
}

func (b *backend) List(context.Context) (all []serving.Deployment, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.runs {
		one := *d
		one.Replicas = slices.Clone(d.Replicas)
		all = append(all, one)
	}
	return all, nil
}

func (b *backend) Forget(_ context.Context, name, replica string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.runs[name]; d != nil {
		d.Replicas = slices.DeleteFunc(d.Replicas, func(r serving.Replica) bool { return r.ID == replica })
		if b.crash && len(d.Replicas) == 0 {
			b.begin(name)
		}
	}
	return nil
}

func (b *backend) Changed() <-chan struct{} { return b.changed }
func (b *backend) Close()                   {}

func (b *backend) running() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.runs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// folders names a folder for every version, and counts what is held.
type folders struct {
	mu   sync.Mutex
	held int
}

func (f *folders) Get(_ context.Context, _ tenant.ID, versionID string) (string, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held++
	return "/models/" + versionID, func() { f.mu.Lock(); defer f.mu.Unlock(); f.held-- }, nil
}

type fixture struct {
	*Pool
	t       *testing.T
	backend *backend
	folders *folders
	at      time.Time
}

func each(t *testing.T, adapters string, test func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		f := &fixture{
			t: t, backend: &backend{t: t, runs: map[string]*serving.Deployment{}, changed: make(chan struct{})},
			folders: &folders{}, at: time.Now(),
		}
		engine := serving.Template("small")
		engine.Adapters = adapters
		f.Pool = New(Config{
			DB: d, Own: live.NewOwnModels(), Registry: engines.NewRegistry(), Backend: f.backend, Folders: f.folders, Engine: engine,
			GPUType: serving.CPU, Slots: 2, Context: 1000, Wait: time.Minute, Idle: time.Hour, Log: slog.New(slog.DiscardHandler),
		})
		f.now = func() time.Time { return f.at }
		test(t, f)
	})
}

// add adds a version, and publishes it as the feed does.
func (f *fixture) add(ws tenant.ID, id, base, file string) {
	f.t.Helper()
	if _, err := db.Exec(f.t.Context(), f.DB.In(ws), `
		INSERT INTO model_versions (workspace_id, id, name, base_model, parent_id, source_type, source_id, source_step,
			document, key_id, jws, files, digest, bytes, adopted_at, created_at)
		VALUES ($1, $2, $3, $4, '', 'fine_tuning_job', 'ftjob_1', 1, $5, '', '', $6, '', 1, 0, 1)`,
		id, "ft/"+id, base, []byte("{}"), `[{"name":"`+file+`","bytes":1,"sha256":"x"}]`); err != nil {
		f.t.Fatal(err)
	}
	f.apply(ws, id)
}

func (f *fixture) apply(ws tenant.ID, id string) {
	f.t.Helper()
	if err := f.Apply(f.t.Context(), db.Change{Kind: modelversion.Changed, Workspace: ws, Subject: id}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) published(ws tenant.ID) (ids []string) {
	for _, m := range f.Own.Of(ws) {
		ids = append(ids, m.ID)
	}
	return ids
}

// ask asks a model, and looks after the engines until it is answered.
func (f *fixture) ask(ws tenant.ID, id string) (*engines.Lease, error) {
	f.t.Helper()
	m, ok := f.Own.Find(ws, id)
	if !ok {
		f.t.Fatalf("%s is not published", id)
	}
	type result struct {
		lease *engines.Lease
		err   error
	}
	answered := make(chan result, 1)
	go func() {
		lease, err := f.Registry.Acquire(f.t.Context(), m.Engines, m.Upstream)
		answered <- result{lease, err}
	}()
	for {
		select {
		case r := <-answered:
			return r.lease, r.err
		case <-f.woken:
		case <-time.After(10 * time.Millisecond):
		}
		f.reconciled()
	}
}

func (f *fixture) reconciled() {
	f.t.Helper()
	if err := f.reconcile(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) answered(ws tenant.ID, id string) string {
	f.t.Helper()
	lease, err := f.ask(ws, id)
	if err != nil {
		f.t.Fatalf("%s: %v", id, err)
	}
	defer lease.Release(false)
	return lease.Replica().ID
}

func TestTrainedModelsAreTheirWorkspacesAlone(t *testing.T) {
	each(t, serving.AdaptersLoad, func(t *testing.T, f *fixture) {
		f.add(dbtest.Mine, "mv_1", "tiny/bigram", "model.bin")
		f.add(dbtest.Mine, "mv_2", "other/large", "model.bin")
		want := []string{"ft/base/tiny/bigram", "ft/mv_1"}
		if got := f.published(dbtest.Mine); !slices.Equal(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
		if got := f.published(dbtest.Theirs); got != nil {
			t.Errorf("another workspace has %q", got)
		}
		again := New(f.Config) // a restart
		again.Own = live.NewOwnModels()
		if err := again.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := again.Own.Of(dbtest.Mine); len(got) != 2 || got[1].ID != "ft/mv_1" || got[1].Engines != unitName("base tiny/bigram") {
			t.Errorf("after a restart: %+v", got)
		}
		if _, err := db.Exec(t.Context(), f.DB.In(dbtest.Mine), `DELETE FROM model_versions WHERE workspace_id = $1 AND id = $2`, "mv_1"); err != nil {
			t.Fatal(err)
		}
		f.apply(dbtest.Mine, "mv_1")
		f.reconciled()
		if got := f.published(dbtest.Mine); got != nil || f.Registry.Find(unitName("base tiny/bigram")) != nil {
			t.Errorf("after the last was deleted: %q", got)
		}
	})
}

func TestVersionsOfABaseModelShareAnEngineThatLoadsThem(t *testing.T) {
	each(t, serving.AdaptersLoad, func(t *testing.T, f *fixture) {
		f.add(dbtest.Mine, "mv_1", "tiny/bigram", "model.bin")
		f.add(dbtest.Theirs, "mv_2", "tiny/bigram", "model.bin")
		if got := f.backend.running(); got != nil {
			t.Errorf("%q run before anybody asks", got)
		}
		first := f.answered(dbtest.Mine, "ft/base/tiny/bigram")
		for ws, id := range map[tenant.ID]string{dbtest.Mine: "ft/mv_1", dbtest.Theirs: "ft/mv_2"} {
			if life := f.answered(ws, id); life != first {
				t.Errorf("%s is served by %s, and the base model by %s", id, life, first)
			}
		}
		f.answered(dbtest.Mine, "ft/mv_1")
		calls := f.backend.calls
		if len(calls) != 4 || calls[0] != "/models" || calls[1] != "/unload_lora_adapter mv_stale" || !slices.Contains(calls, "/load_lora_adapter mv_1 /models/mv_1") {
			t.Errorf("%q", calls)
		}
		f.backend.calls = nil
		f.backend.replace()
		f.reconciled()
		if life := f.answered(dbtest.Mine, "ft/mv_1"); life == first || !slices.Contains(f.backend.calls, "/load_lora_adapter mv_1 /models/mv_1") {
			t.Errorf("a restarted engine, %s: %q", life, f.backend.calls)
		}
		if f.folders.held != 1 {
			t.Errorf("%d folders are held", f.folders.held)
		}
		f.at = f.at.Add(f.Idle + time.Minute)
		f.reconciled() // it is ready since the look before
		f.at = f.at.Add(f.Idle + time.Minute)
		if f.reconciled(); f.backend.running() != nil || f.folders.held != 0 {
			t.Errorf("idle: %q run, %d folders are held", f.backend.running(), f.folders.held)
		}
		f.answered(dbtest.Mine, "ft/mv_1") // and it is woken
	})
}

func TestEnginesOfOneVersionMakeRoomForEachOther(t *testing.T) {
	each(t, serving.AdaptersNone, func(t *testing.T, f *fixture) {
		for _, id := range []string{"mv_1", "mv_2", "mv_3"} {
			f.add(dbtest.Mine, id, "tiny/bigram", "model.bin")
		}
		name := func(id string) string { return unitName("version " + id) }
		busy, err := f.ask(dbtest.Mine, "ft/mv_1")
		if err != nil {
			t.Fatal(err)
		}
		f.answered(dbtest.Mine, "ft/mv_2")
		f.answered(dbtest.Mine, "ft/mv_3")
		want := []string{name("mv_1"), name("mv_3")}
		slices.Sort(want)
		if got := f.backend.running(); !slices.Equal(got, want) || f.folders.held != 2 {
			t.Errorf("want %q, got %q, %d folders are held", want, got, f.folders.held)
		}
		if d := f.backend.runs[name("mv_3")].Spec; d.Folder != "/models/mv_3" || d.Version != "mv_3" || d.Adapters != 0 {
			t.Errorf("%+v", d)
		}
		busy.Release(false)
	})
}

func TestAVersionWithWholeWeightsHasAnEngineOfItsOwn(t *testing.T) {
	each(t, serving.AdaptersLoad, func(t *testing.T, f *fixture) {
		f.add(dbtest.Mine, "mv_1", "tiny/bigram", "model.safetensors")
		f.add(dbtest.Mine, "mv_2", "tiny/bigram", "adapter_config.json")
		f.answered(dbtest.Mine, "ft/mv_1")
		f.answered(dbtest.Mine, "ft/mv_2")
		want := []string{unitName("version mv_1"), unitName("base tiny/bigram")}
		slices.Sort(want)
		if got := f.backend.running(); !slices.Equal(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
	})
}

func TestAnEngineThatDoesNotStartRefusesWithTheReasonAndIsTriedAgain(t *testing.T) {
	each(t, serving.AdaptersLoad, func(t *testing.T, f *fixture) {
		f.add(dbtest.Mine, "mv_1", "tiny/bigram", "model.bin")
		f.backend.crash = true
		if _, err := f.ask(dbtest.Mine, "ft/mv_1"); err == nil || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("%v", err)
		}
		if f.backend.lives != maxFailures || f.backend.running() != nil {
			t.Errorf("%d engines were started, %q run", f.backend.lives, f.backend.running())
		}
		f.backend.crash = false
		if _, err := f.ask(dbtest.Mine, "ft/mv_1"); err == nil {
			t.Error("it is tried again at once")
		}
		f.at = f.at.Add(giveUp + time.Second)
		f.reconciled() // somebody has asked since
		f.answered(dbtest.Mine, "ft/mv_1")
	})
}

func TestWhatNoModelNeedsIsStopped(t *testing.T) {
	each(t, serving.AdaptersLoad, func(t *testing.T, f *fixture) {
		err := errors.Join(f.backend.Apply(t.Context(), serving.Spec{Name: "pool-left"}), f.backend.Apply(t.Context(), serving.Spec{Name: "ep-1"}))
		if f.reconciled(); err != nil || !slices.Equal(f.backend.running(), []string{"ep-1"}) {
			t.Errorf("%q run, %v", f.backend.running(), err)
		}
	})
}
