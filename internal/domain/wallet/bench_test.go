package wallet

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// Proving a ledger costs what it has rows, and no more: ns/row must not grow from one size to the next.
func BenchmarkVerify(b *testing.B) {
	for _, batches := range []int{500, 4000} {
		b.Run(fmt.Sprintf("%d batches", batches), func(b *testing.B) {
			const each = 20
			d, err := db.Open(b.Context(), b.TempDir(), secret.Text{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			if err := d.Migrate(b.Context()); err != nil {
				b.Fatal(err)
			}
			fillLedger(b, d, batches, each)
			store := NewStore(d, (*feed.Feed)(nil), funds.New())
			b.ResetTimer()
			for range b.N {
				if _, err := store.Verify(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batches*each), "ns/row")
		})
	}
}

func fillLedger(b *testing.B, d *db.DB, batches, each int) {
	b.Helper()
	const ws = tenant.ID("ws_1")
	if _, err := db.Exec(b.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, 'one', 1)`); err != nil {
		b.Fatal(err)
	}
	const price = `{"input_per_mtok_usd":1,"cached_input_per_mtok_usd":1,"output_per_mtok_usd":1}`
	_, err := d.Tx(b.Context(), func(tx *db.Tx) error {
		for batch := range batches {
			transfer := fmt.Sprint("txn_", batch)
			rows := make([][]any, each)
			for i := range rows {
				rows[i] = []any{ws, 1, fmt.Sprintf("req_%d_%d", batch, i), transfer, "k", "chat", "m", "m", "", "p", "finished", false, false, 1, 0, 0, 0, 1, 0, 0, 0, price, 2000, 2000}
			}
			if err := db.Insert(b.Context(), tx.Across("test"), "usage_rows", usageColumns, rows); err != nil {
				return err
			}
			lines := [][]any{{transfer, 0, ws, accountWallet, -2000 * each, kindUsage, "", 1}, {transfer, 1, ws, accountUsage, 2000 * each, kindUsage, "", 1}}
			if err := db.Insert(b.Context(), tx.Across("test"), "ledger_entries", []string{"transfer_id", "line", "workspace_id", "account", "amount", "kind", "memo", "at"}, lines); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// Posting to the ledger happens after the answer, but it is part of what a request costs.
func BenchmarkPost(b *testing.B) {
	for name, workspaces := range map[string]int{"of one workspace": 1, "each of its own": 20_000} {
		b.Run(name, func(b *testing.B) { benchmarkPost(b, workspaces) })
	}
}

func benchmarkPost(b *testing.B, workspaces int) {
	const each = 1000
	d := benchmarkLedger(b, workspaces)
	days, before := usage.NewDays(), worked(b)
	for b.Loop() {
		charges := make([]*journal.Charge, each)
		for i := range charges {
			charges[i] = benchmarkCharge(workspaces)
		}
		if _, err := d.Tx(b.Context(), func(tx *db.Tx) error {
			_, err := postUsage(b.Context(), tx, days, byWorkspace(charges), nil)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(worked(b)-before)/float64(b.N*each), "cpu-ns/request") // the rest of the time is the disk's
}

func benchmarkLedger(b *testing.B, workspaces int) *db.DB {
	b.Helper()
	d, err := db.Open(b.Context(), b.TempDir(), secret.Text{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	all := make([][]any, workspaces)
	for i := range all {
		name := fmt.Sprintf("ws_%026d", i)
		all[i] = []any{name, name, int64(1)}
	}
	if err := db.Insert(b.Context(), d.Across("a benchmark"), "workspaces", []string{"workspace_id", "name", "created_at"}, all); err != nil {
		b.Fatal(err)
	}
	return d
}

func benchmarkCharge(workspaces int) *journal.Charge {
	return &journal.Charge{
		Request: id.New("req"), Workspace: tenant.ID(fmt.Sprintf("ws_%026d", rand.N(workspaces))), Key: "key_0sg4xqwdsb54tx1tv5v5befqng", At: clock.Now(), Route: "chat", Model: "mock/chat", Requested: "fast",
		Alias: "fast", Provider: "mock", Outcome: "finished", Usage: live.Usage{Input: 120, Output: 60}, Price: live.Flat(150_000_000, 600_000_000), Cost: 54_000,
	}
}

// The whole of it, from the journal on, of requests that differ in what they used.
func BenchmarkDrain(b *testing.B) {
	const each, workspaces = 1000, 1
	d := benchmarkLedger(b, workspaces)
	disk, err := journal.Folder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	j, err := journal.Open(disk)
	if err != nil {
		b.Fatal(err)
	}
	poster := NewPoster(d, j, funds.New(), slog.New(slog.DiscardHandler))
	if _, err := poster.Recover(b.Context()); err != nil {
		b.Fatal(err)
	}
	for range b.N {
		entries := make([]journal.Entry, each)
		for i := range entries {
			c := benchmarkCharge(workspaces)
			c.Usage.Input, c.Usage.Output, c.Cost = 300+rand.N[int64](9999), 300+rand.N[int64](999), 54_000+rand.N[money.Nano](9999)
			entries[i] = journal.Entry{Kind: journal.Settled, Charge: *c}
		}
		if err := j.Append(entries...); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	b.ResetTimer()
	before := worked(b)
	if err := poster.Drain(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(worked(b)-before)/float64(b.N*each), "cpu-ns/request")
}

// worked is the processor's time that this process has used.
func worked(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
