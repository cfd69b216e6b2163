package chain_test

import (
	"fmt"
	"log/slog"
	"testing"

	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// The ledger's writer hashes every usage row.
func BenchmarkRowHash(b *testing.B) {
	var columns []string
	var row []any
	for i := range 12 {
		columns = append(columns, fmt.Sprint("text_", i), fmt.Sprint("number_", i))
		row = append(row, "req_0sg7kzhvrts3an2n1mz5qzsp78", int64(i))
	}
	layout := chain.NewLayout("usage_rows", columns)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := layout.Hash(row); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		b.Run(string(engine), func(b *testing.B) {
			const each = 2000
			d := dbtest.Migrated(b, engine)
			sealer := chain.NewSealer(d, openKeys(b, d), slog.New(slog.DiscardHandler))
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				links := make([]chain.Link, each)
				for i := range links {
					links[i] = chain.NewLink(fmt.Sprintf("txn_%d_%d", n, i), chain.Hash{})
				}
				if _, err := d.Tx(b.Context(), func(tx *db.Tx) error {
					return chain.Add(b.Context(), tx, chain.Ledger, links...)
				}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := sealer.Seal(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*each), "ns/link")
		})
	}
}
