package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"sovereign/internal/store/db/dbtest"
)

// scale is the scenario of several servers on one PostgreSQL database, beside servers on SQLite.
const scale = "scale"

// Names of its targets.
const (
	nameEmbedded = "1 server, SQLite"
	nameApart    = "3 servers, SQLite each"
	nameOneNode  = "1 node, PostgreSQL"
	nameTwoNodes = "2 nodes, PostgreSQL"
	nameThree    = "3 nodes, PostgreSQL"
)

// scaled are its targets: so many servers on one PostgreSQL database, or each on a SQLite database of its own. Servers
// that know nothing of each other show what more processes cost on the same cores.
var scaled = []struct {
	name    string
	servers int
	shared  bool
}{
	{nameEmbedded, 1, false},
	{nameApart, 3, false},
	{nameOneNode, 1, true},
	{nameTwoNodes, 2, true},
	{nameThree, 3, true},
}

// scales measures all of them side by side.
func (b *bench) scales(ctx context.Context) error {
	if !slices.Contains(b.only, scale) || !slices.Contains(b.targets, nameOurs) {
		return nil
	}
	return b.staged(ctx, nil, func(s *stage) error {
		for _, servers := range scaled {
			start := startApart
			if servers.shared {
				start = startNodes
			}
			t, err := start(ctx, s, b.options, servers.name, servers.servers)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", scale, servers.name, err)
			}
			if t == nil {
				return nil
			}
			s.targets = append(s.targets, t)
		}
		sc := *chatScenario()
		sc.name = scale
		for repeat := range b.times(&sc) {
			if err := b.round(ctx, s, &sc, s.targets, repeat); err != nil {
				return fmt.Errorf("%s: %w", scale, err)
			}
		}
		return nil
	})
}

// startApart starts so many servers, each on a copy of one SQLite database: they have the same keys, and nothing else
// in common.
func startApart(ctx context.Context, s *stage, o *options, name string, servers int) (*target, error) {
	first, folder, err := newSovereign(s, o, "apart")
	if err != nil {
		return nil, err
	}
	if err := first.fill(ctx, s, tenKeys); err != nil {
		return nil, err
	}
	for range servers - 1 {
		other, into, err := newSovereign(s, o, "apart")
		if err != nil {
			return nil, err
		}
		if err := other.copy(ctx, s, first); err != nil {
			return nil, err
		}
		if err := other.serve(ctx, s, o, into, "apart"); err != nil {
			return nil, err
		}
		first.apart = append(first.apart, other)
	}
	if err := first.serve(ctx, s, o, folder, "apart"); err != nil {
		return nil, err
	}
	return &target{
		name: name, server: first, address: first.address, process: first.process, senders: first.senders,
		others: first.apart,
	}, nil
}

// startNodes starts so many servers on one PostgreSQL database. It returns nil, and says so, where there is no
// PostgreSQL.
func startNodes(ctx context.Context, s *stage, o *options, name string, nodes int) (*target, error) {
	t := &target{name: name}
	base, err := startPostgres(ctx, s)
	if err != nil {
		o.say("%-10s left out: %v", scale, err)
		return nil, nil //nolint:nilnil // none is no error
	}
	first, err := startShared(ctx, s, o, base)
	if err != nil {
		return nil, err
	}
	t.server, t.address, t.process, t.senders, t.database = first, first.address, first.process, first.senders, base
	for i := 1; i < nodes; i++ {
		other := &sovereign{binary: first.binary, root: first.root, url: first.url}
		folder := filepath.Join(s.folder, fmt.Sprintf("%s-%d", name, i+1))
		if other.data = filepath.Join(folder, "data"); os.MkdirAll(other.data, 0o700) != nil {
			return nil, fmt.Errorf("make %s", other.data)
		}
		if err := other.serve(ctx, s, o, folder, fmt.Sprintf("node%d", i+1)); err != nil {
			return nil, err
		}
		t.others = append(t.others, other)
	}
	return t, nil
}

// startShared fills a PostgreSQL database and starts the first server on it.
func startShared(ctx context.Context, s *stage, o *options, base *postgres) (*sovereign, error) {
	g, folder, err := newSovereign(s, o, "node1")
	if err != nil {
		return nil, err
	}
	g.url, g.counter = base.url, base.counter
	if err := g.fill(ctx, s, tenKeys); err != nil {
		return nil, err
	}
	return g, g.serve(ctx, s, o, folder, "node1")
}

// A postgres is a PostgreSQL server of one target. Its disk is asked to keep what was committed, as in production.
type postgres struct {
	server  *dbtest.Server
	url     string
	counter *sql.Conn // which counts rows for us
	backend int       // its process, whose work is ours
}

func startPostgres(ctx context.Context, s *stage) (*postgres, error) {
	server, err := dbtest.NewServer()
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = server.Remove() })
	server.Settings = []string{"fsync=on", "full_page_writes=on"}
	if err := server.Start(); err != nil { //nolint:contextcheck // it runs until stopped
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = server.Stop() })
	p := &postgres{server: server, url: server.URL()}
	pool, err := sql.Open("pgx", p.url)
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = pool.Close() })
	if p.counter, err = pool.Conn(ctx); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = p.counter.Close() })
	if _, err := p.counter.ExecContext(ctx, `SET max_parallel_workers_per_gather = 0`); err != nil {
		return nil, err
	}
	return p, p.counter.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&p.backend)
}

// spent is the CPU time of all the server's processes, those that have ended too. What our own connection used is
// apart.
func (p *postgres) spent() (all, ours time.Duration, err error) {
	pid := p.server.PID()
	if all, err = processClock(pid); err != nil {
		return 0, 0, err
	}
	ended, err := reaped(pid)
	if err != nil {
		return 0, 0, err
	}
	all += ended
	for _, child := range children(pid) {
		used, err := processClock(child)
		switch {
		case err != nil: // it has ended since, and the next reading has it among those
		case child == p.backend:
			ours = used
		default:
			all += used
		}
	}
	return all, ours, nil
}
