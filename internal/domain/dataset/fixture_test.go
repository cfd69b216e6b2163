package dataset_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
)

const (
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
)

var ann = tenant.Caller{Workspace: mine, User: "usr_ann", Key: "key_1"}.Actor()

// A fixture is the datasets of one storage with two workspaces, whose exchanges are logged through the recorder and the
// spool. A runner does their jobs.
type fixture struct {
	*dataset.Store
	db, logs *db.DB
	feed     *feed.Feed
	settings *live.AllSettings
	recorder *capture.Recorder
	ingester *logbook.Ingester
	book     *logbook.Handler
	runner   *job.Runner
	stop     func() // stops the runner; jobs go on with the next
}

func eachStorage(t *testing.T, test func(t *testing.T, r fixture)) {
	t.Helper()
	dbtest.EachWithLogs(t, func(t *testing.T, core, logs *db.DB) {
		for _, ws := range []tenant.ID{mine, theirs} {
			if _, err := db.Exec(t.Context(), core.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, ws); err != nil {
				t.Fatal(err)
			}
		}
		disk, err := journal.Folder(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s, err := spool.Open(disk, spool.Position{}, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		log := slog.New(slog.DiscardHandler)
		r := fixture{db: core, logs: logs, settings: live.NewSettings(), feed: feed.New(core, log, nil), ingester: logbook.NewIngester(logs, s, "test", log)}
		r.recorder = capture.NewRecorder(r.settings, s)
		r.book = logbook.NewHandler(logbook.NewStore(logs), r.ingester, r.settings)
		r.logging(30)
		r.serve(t)
		test(t, r)
	})
}

// serve makes a store with a runner of its own and runs it, as a server that has just started does.
func (r *fixture) serve(t *testing.T) {
	t.Helper()
	r.runner = job.NewRunner(job.Config{DB: r.db, Log: slog.New(slog.DiscardHandler), PerWorkspace: 4})
	r.Store = dataset.NewStore(r.db, logbook.NewStore(r.logs), r.runner, r.book.Open)
	for kind, work := range r.Jobs() {
		r.runner.Handle(kind, work)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	runner := r.runner
	go func() { defer close(done); runner.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
}

// fromLogs starts a build and waits for it.
func (r fixture) fromLogs(ctx context.Context, ws tenant.ID, recipe dataset.Recipe) (dataset.Dataset, error) {
	id, err := r.Start(ctx, ws, ann, recipe)
	if err != nil {
		return dataset.Dataset{}, err
	}
	return r.Await(ctx, ws, id)
}

func (r fixture) logging(days int64) {
	r.settings.Put(mine, live.Settings{LogDays: days})
	r.settings.Put(theirs, live.Settings{LogDays: days})
}

// A chat is an exchange to be logged. Messages are alternately the user's and the assistant's.
type chat struct {
	ws       tenant.ID
	tag      string
	trace    string
	messages []string
	parts    bool   // the messages are written as parts, which means the same
	response string // the whole message as JSON, or just its text
	finish   string
	tools    string
}

func (r fixture) log(t *testing.T, chats ...chat) {
	t.Helper()
	for _, c := range chats {
		messages := []map[string]any{{"role": "system", "content": "You help."}}
		for i, text := range c.messages {
			message := map[string]any{"role": []string{"user", "assistant"}[i%2], "content": text}
			if c.parts {
				message["content"] = []map[string]string{{"type": "text", "text": text}}
			}
			messages = append(messages, message)
		}
		said, err := json.Marshal(messages, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(c.response, "{") {
			c.response = fmt.Sprintf(`{"role":"assistant","content":%q}`, c.response)
		}
		if c.finish == "" {
			c.finish = "stop"
		}
		if c.ws == "" {
			c.ws = mine
		}
		r.recorder.Record(&capture.Exchange{
			Workspace: c.ws, Key: "key_1", Model: "sim/chat", Requested: "sim/chat", Provider: "sim", Tag: c.tag, Trace: c.trace,
			Messages: said, Tools: []byte(c.tools), Answer: fmt.Appendf(nil, `{"choices":[{"message":%s,"finish_reason":%q}]}`, c.response, c.finish),
		})
	}
	if err := r.ingester.Ingest(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// some are exchanges that are unlike each other.
func some(tag string, n int) []chat {
	chats := make([]chat, n)
	for i := range chats {
		words := func(what string) string {
			var all []string
			for j := range 12 {
				all = append(all, fmt.Sprintf("%s%s%d", what, tag, i*100+j))
			}
			return strings.Join(all, " ")
		}
		chats[i] = chat{tag: tag, messages: []string{words("ask")}, response: words("say")}
	}
	return chats
}

func (r fixture) make(t *testing.T, recipe dataset.Recipe) dataset.Dataset {
	t.Helper()
	d, err := r.fromLogs(t.Context(), mine, recipe)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (r fixture) get(t *testing.T, id string) dataset.Dataset {
	t.Helper()
	d, err := r.Get(t.Context(), mine, id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (r fixture) export(t *testing.T, d dataset.Dataset) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.Export(t.Context(), mine, &d, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (r fixture) delete(t *testing.T, id string) {
	t.Helper()
	if err := r.Delete(t.Context(), mine, ann, id); err != nil {
		t.Fatal(err)
	}
}

func lines(text string) []string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(all)
	return all
}

// counts says how many rows the tables of datasets have: datasets, rows, examples, loose.
func (r fixture) counts(t *testing.T) (n [4]int) {
	t.Helper()
	for i, table := range []string{"datasets", "dataset_rows", "dataset_examples", "dataset_loose"} {
		var err error
		if n[i], err = db.One[int](t.Context(), r.db.Across("test"), `SELECT COUNT(*) FROM `+table); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (r fixture) has(t *testing.T, want [4]int) {
	t.Helper()
	if got := r.counts(t); got != want {
		t.Errorf("datasets, rows, examples, loose: %v, want %v", got, want)
	}
}

// repeatedly calls a function in the background until stop is called, which returns how often it succeeded.
func repeatedly(ctx context.Context, what func(context.Context) error) (stop func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	times := 0
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			if err = what(context.WithoutCancel(ctx)); err == nil {
				times++
			}
		}
		done <- err
	}()
	return func() (int, error) {
		cancel()
		err := <-done
		return times, err
	}
}
