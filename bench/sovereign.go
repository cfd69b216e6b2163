package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
)

// A sovereign is a gateway with everything on: keys, names, money that is held, the journal, the ledger, metrics, logs.
type sovereign struct {
	*process
	binary     string
	data, root string
	url        string    // of a PostgreSQL database; empty for SQLite
	counter    *sql.Conn // that counts rows there
	address    string
	operations string
	started    time.Duration // from its start until it was ready
	books      *db.DB
	logs       *db.DB       // nil when nothing is logged
	apart      []*sovereign // servers with books of their own, to which the same load is spread
	seeded
}

// configuration is two providers that are the same mock. The second one is reached by net/http's own transport.
func configuration(mock, transport string) []byte {
	if transport != "" {
		transport = ", transport: " + transport
	}
	const models = `, context_window: 1280000, max_output_tokens: 4096, price: {input_per_mtok_usd: 0.15, output_per_mtok_usd: 0.6}}`
	return fmt.Appendf(nil, `providers:
  - {name: mock, kind: openai, base_url: "http://%[1]s/v1", api_key: provider-secret%[2]s}
  - {name: standard, kind: openai, base_url: "http://%[1]s/v1", api_key: provider-secret, transport: standard}
models:
  - {id: mock/chat, provider: mock, upstream_model: gpt-4o-mini, kind: chat%[3]s
  - {id: mock/canary, provider: mock, upstream_model: gpt-4o-mini, kind: chat%[3]s
  - {id: standard/chat, provider: standard, upstream_model: gpt-4o-mini, kind: chat%[3]s
  - {id: mock/embedding, provider: mock, upstream_model: text-embedding-3-small, kind: embedding, context_window: 8192, price: {input_per_mtok_usd: 0.02}}
  - {id: standard/embedding, provider: standard, upstream_model: text-embedding-3-small, kind: embedding, context_window: 8192, price: {input_per_mtok_usd: 0.02}}
`, mock, transport, models)
}

// startSovereign fills a database with so many keys, names and workspaces, and starts a server on it.
func startSovereign(ctx context.Context, s *stage, o *options, name string, n sizes) (*sovereign, error) {
	g, folder, err := newSovereign(s, o, name)
	if err != nil {
		return nil, err
	}
	if err := g.fill(ctx, s, n); err != nil {
		return nil, err
	}
	return g, g.serve(ctx, s, o, folder, name)
}

// fill fills the server's database.
func (g *sovereign) fill(ctx context.Context, s *stage, n sizes) (err error) {
	if g.books, err = db.Open(ctx, g.data, secret.New(g.url)); err != nil {
		return err
	}
	s.ends = append(s.ends, func() { _ = g.books.Close() })
	if g.seeded, err = seed(ctx, g.books, n); err != nil {
		return fmt.Errorf("fill the database: %w", err)
	}
	return nil
}

// copy copies the SQLite database of another server, which does not run yet.
func (g *sovereign) copy(ctx context.Context, s *stage, other *sovereign) (err error) {
	if _, err := db.Exec(
		ctx, other.books.Across("the bench copies all"), `PRAGMA wal_checkpoint(TRUNCATE)`,
	); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if err := os.CopyFS(g.data, os.DirFS(other.data)); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if g.books, err = db.Open(ctx, g.data, secret.Text{}); err != nil {
		return err
	}
	s.ends = append(s.ends, func() { _ = g.books.Close() })
	g.seeded = other.seeded
	return nil
}

// newSovereign makes the folder of a server.
func newSovereign(s *stage, o *options, name string) (g *sovereign, folder string, err error) {
	binary, err := filepath.Abs(o.binary)
	if err != nil {
		return nil, "", err
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, "", fmt.Errorf("build it first: %w", err)
	}
	if folder, err = os.MkdirTemp(s.folder, name); err != nil {
		return nil, "", err
	}
	g = &sovereign{binary: binary, data: filepath.Join(folder, "data"), root: filepath.Join(folder, "root.key")}
	return g, folder, os.Mkdir(g.data, 0o700)
}

func (g *sovereign) serve(ctx context.Context, s *stage, o *options, folder, name string) (err error) {
	file := filepath.Join(folder, "sovereign.yaml")
	if err := os.WriteFile(file, configuration(s.address, o.transport), 0o600); err != nil {
		return err
	}
	if g.address, err = freeAddress(ctx); err != nil {
		return err
	}
	if g.operations, err = freeAddress(ctx); err != nil {
		return err
	}
	began := time.Now()
	args := append([]string{"serve", "--config", file}, g.place()...)
	args = append(
		args, "--listen", g.address, "--operations-listen", g.operations, "--limits-connections",
		strconv.Itoa(2*idleStreams),
	)
	g.process, err = start(ctx, folder, name, syscall.SIGKILL, g.binary, args...)
	if err != nil {
		return err
	}
	s.ends = append(s.ends, g.stop)
	err = g.until(ctx, 2*time.Minute, func(ctx context.Context) error {
		_, err := get(ctx, "http://"+g.operations+"/readyz")
		return err
	})
	g.started = time.Since(began)
	return err
}

// place names the server's data on its command line.
func (g *sovereign) place() []string {
	flags := []string{"--data-dir", g.data, "--root-key-file", g.root}
	if g.url != "" {
		flags = append(flags, "--database-url", g.url)
	}
	return flags
}

func startOurs(ctx context.Context, s *stage, o *options, prefix string) (*target, error) {
	t := &target{name: map[string]string{"": nameOurs, "standard-": nameStandard}[prefix]}
	for _, other := range s.targets { // one server has both transports
		if other.name == nameOurs || other.name == nameStandard {
			t.server = other.server
		}
	}
	if t.server == nil {
		var err error
		if t.server, err = startSovereign(ctx, s, o, nameOurs, tenKeys); err != nil {
			return nil, err
		}
	}
	t.address, t.process = t.server.address, t.server.process
	t.senders = func(kind string) senders { return t.server.senders(prefix + kind) }
	return t, nil
}

// startLogging starts a server that logs every exchange.
func startLogging(ctx context.Context, s *stage, o *options) (*target, error) {
	n := tenKeys
	n.logs = true
	return startWithLogs(ctx, s, o, nameLogging, n)
}

// startSplit starts a server that logs every exchange, and whose aliases for chat have a canary.
func startSplit(ctx context.Context, s *stage, o *options, name string, gated bool) (*target, error) {
	n := tenKeys
	n.logs, n.split, n.gated = true, true, gated
	t, err := startWithLogs(ctx, s, o, name, n)
	if err == nil && gated {
		err = t.server.gate(ctx)
	}
	return t, err
}

func startWithLogs(ctx context.Context, s *stage, o *options, name string, n sizes) (*target, error) {
	server, err := startSovereign(ctx, s, o, name, n)
	if err != nil {
		return nil, err
	}
	if server.logs, err = db.OpenLogs(ctx, server.data, secret.Text{}); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = server.logs.Close() })
	return &target{
		name: name, server: server, address: server.address, process: server.process, senders: server.senders,
	}, nil
}

// gate gives the split aliases a gate that draws every request. Its budget allows no call of the judge: what is
// measured is what requests pay for the gate, and calls of a judge would be in the books.
func (g *sovereign) gate(ctx context.Context) error {
	var judge struct{ ID string }
	err := g.call(ctx, http.MethodPost, "/v1/criteria", map[string]any{
		"name": "Right", "rubric": "The response is right.", "judge_model": kinds["chat"],
	}, &judge)
	for i := 0; i < g.aliases && err == nil; i++ {
		err = g.call(ctx, http.MethodPut, "/v1/aliases", map[string]any{
			"name": alias("chat", i), "target_model": kinds["chat"], "canary_model": canaryModel,
			"canary_percent": canaryPercent, "gate_criterion_id": judge.ID, "gate_sample_percent": 100,
			"gate_max_cost_usd": 0.000001,
		}, nil)
	}
	return err
}

// call calls a route with the first key. out may be nil.
func (g *sovereign) call(ctx context.Context, method, path string, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+g.address+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+g.keys[0])
	request.Header.Set("Content-Type", "application/json")
	answer, err := send(request)
	if err == nil && out != nil {
		err = json.Unmarshal(answer, out)
	}
	return err
}

// startLimits starts a server whose keys and workspaces have every limit.
func startLimits(ctx context.Context, s *stage, o *options) (*target, error) {
	n := tenKeys
	n.limits = true
	server, err := startSovereign(ctx, s, o, nameLimits, n)
	if err != nil {
		return nil, err
	}
	return &target{
		name: nameLimits, address: server.address, process: server.process, server: server, senders: server.senders,
	}, nil
}

// startBefore starts another build.
func startBefore(ctx context.Context, s *stage, o *options) (*target, error) {
	other := *o
	other.binary = o.before
	server, err := startSovereign(ctx, s, &other, nameBefore, tenKeys)
	if err != nil {
		return nil, err
	}
	return &target{
		name: nameBefore, address: server.address, process: server.process, server: server, senders: server.senders,
	}, nil
}

// rows is how many requests are in the books, in the logs where there are some, and drawn where there is a gate: the
// least of them.
func (g *sovereign) rows(ctx context.Context) (n int64, err error) {
	if g.counter != nil {
		err = g.counter.QueryRowContext(ctx, `SELECT COUNT(*) FROM usage_rows`).Scan(&n)
		return n, err
	}
	n, err = db.One[int64](ctx, g.books.Across("the bench counts all"), `SELECT COUNT(*) FROM usage_rows`)
	for _, other := range g.apart {
		if err == nil {
			var more int64
			more, err = other.rows(ctx)
			n += more
		}
	}
	if err != nil || g.logs == nil {
		return n, err
	}
	logged, err := db.One[int64](
		ctx, g.logs.Across("the bench counts all"),
		`SELECT COALESCE(CAST(SUM(n) AS BIGINT), 0) FROM log_counts WHERE facet = ''`,
	)
	if n = min(n, logged); err != nil || !g.gated {
		return n, err
	}
	drawn, err := db.One[int64](
		ctx, g.logs.Across("the bench counts all"), `SELECT COALESCE(CAST(SUM(n) AS BIGINT), 0) FROM canary_draws`,
	)
	return min(n, drawn), err
}

var errBooks = errors.New("the books are not complete")

// settle waits until so many requests are in the books: what a gateway has put off is its work too.
func (g *sovereign) settle(ctx context.Context, want int64) error {
	const most = 3 * time.Minute
	for began := time.Now(); ; {
		have, err := g.rows(ctx)
		switch {
		case err != nil:
			return err
		case have == want:
			return nil
		case have > want || time.Since(began) > most:
			return g.failure(fmt.Errorf("%w: %d rows of usage for %d requests", errBooks, have, want))
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// prove checks the ledger against itself.
func (g *sovereign) prove(ctx context.Context) error {
	command := exec.CommandContext(ctx, g.binary, append([]string{"admin", "ledger", "verify"}, g.place()...)...) //nolint:gosec // our own program
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, other := range g.apart {
		if err := other.prove(ctx); err != nil {
			return err
		}
	}
	return nil
}

// profile reads the CPU profile of that time into a file.
func (g *sovereign) profile(ctx context.Context, file string, during time.Duration) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", g.operations, max(1, int(during.Seconds())))
	text, err := get(ctx, url)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
