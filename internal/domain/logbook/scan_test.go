package logbook_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const scanCondition tenant.ID = "ws_scanned"

// logged ingests n exchanges, number i with the tag that tag returns and the answer "answer i".
func logged(t *testing.T, logs *db.DB, n int, tag func(i int) string) {
	t.Helper()
	disk, err := journal.Folder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := spool.Open(disk, spool.Position{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	settings := live.NewSettings()
	settings.Put(scanCondition, live.Settings{LogDays: 7})
	recorder := capture.NewRecorder(settings, s)
	for i := range n {
		recorder.Record(&capture.Exchange{
			Workspace: scanCondition, Model: "m", Tag: tag(i), Messages: fmt.Appendf(nil, `[{"role":"user","content":"ask %d"}]`, i),
			Answer: fmt.Appendf(nil, `{"choices":[{"message":{"role":"assistant","content":"answer %d"},"finish_reason":"stop"}]}`, i),
		})
	}
	if err := logbook.NewIngester(logs, s, "scan", slog.New(slog.DiscardHandler)).Ingest(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func answer(i int) string { return fmt.Sprintf(`{"role":"assistant","content":"answer %d"}`, i) }

func TestAScanIsTheSameEachTimeWhateverIsDeletedMeanwhile(t *testing.T) {
	dbtest.EachWithLogs(t, func(t *testing.T, _, logs *db.DB) {
		logged(t, logs, 100, func(int) string { return "" })
		// Rows may share a time if the clock went back.
		if _, err := db.Exec(t.Context(), logs.Across("test"), `UPDATE log_rows SET at = (SELECT MAX(at) FROM log_rows) WHERE at >= (SELECT at FROM log_rows ORDER BY at LIMIT 1 OFFSET 90)`); err != nil {
			t.Fatal(err)
		}
		err := logbook.NewStore(logs).Scan(t.Context(), scanCondition, &logbook.Filters{}, 1000, func(s *logbook.Scan) error {
			if s.Len() != 100 || s.Capped {
				t.Errorf("%d rows, capped %v", s.Len(), s.Capped)
			}
			for range 2 {
				i := 99
				for x, err := range s.Facts(t.Context()) {
					if err != nil {
						return err
					}
					if string(x.Response) != answer(i) || x.FinishReason != "stop" || x.Messages != nil {
						t.Errorf("%d: %+v", i, x)
					}
					i--
				}
				for x, err := range s.Chains(t.Context()) {
					if err != nil || len(x.Chain) == 0 {
						return fmt.Errorf("%v: %w", x, err)
					}
					i++
				}
				if i != 99 {
					t.Errorf("%d rows are missing", i)
				}
				if _, err := db.Exec(t.Context(), logs.Across("test"), `DELETE FROM log_rows`); err != nil {
					return err
				}
			}
			which, at := []int{0, 1, 5, 40, 41, 99}, 0
			for x, err := range s.Texts(t.Context(), which) {
				if err != nil {
					return err
				}
				if want := fmt.Sprintf(`[{"role":"user","content":"ask %d"}]`, 99-which[at]); string(x.Messages) != want {
					t.Errorf("%s, want %s", x.Messages, want)
				}
				at++
			}
			if at != len(which) {
				t.Errorf("%d texts", at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestAScanFollowsItsFiltersAndItsBound(t *testing.T) {
	dbtest.EachWithLogs(t, func(t *testing.T, _, logs *db.DB) {
		logged(t, logs, 60, func(i int) string { return []string{"", "a", "b"}[i%3] })
		yes := false
		for _, c := range []struct {
			filters logbook.Filters
			most    int
			want    []int // the first and the last, and how many
			capped  bool
		}{
			{logbook.Filters{}, 60, []int{59, 0, 60}, false},
			{logbook.Filters{}, 59, []int{59, 1, 59}, true},
			{logbook.Filters{Tag: "a"}, 100, []int{58, 1, 20}, false},
			{logbook.Filters{Tag: "a", Model: "m", CacheHit: &yes}, 5, []int{58, 46, 5}, true},
			{logbook.Filters{Tag: "never"}, 5, nil, false},
			{logbook.Filters{End: 5}, 5, nil, false},
		} {
			var got []int
			err := logbook.NewStore(logs).Scan(t.Context(), scanCondition, &c.filters, c.most, func(s *logbook.Scan) error {
				for x, err := range s.Facts(t.Context()) {
					if err != nil {
						return err
					}
					var i int
					if _, err := fmt.Sscanf(string(x.Response), `{"role":"assistant","content":"answer %d"}`, &i); err != nil {
						return err
					}
					got = append(got, i)
				}
				if s.Capped != c.capped || s.Len() != len(got) {
					t.Errorf("%+v: capped %v, %d of %d", c.filters, s.Capped, len(got), s.Len())
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) > 0 {
				got = []int{got[0], got[len(got)-1], len(got)}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%+v: %v, want %v", c.filters, got, c.want)
			}
		}
		if err := logbook.NewStore(logs).Scan(t.Context(), scanCondition, &logbook.Filters{Start: 9, End: 9}, 5, nil); fault.From(err).Field != "end" {
			t.Error(err)
		}
	})
}
