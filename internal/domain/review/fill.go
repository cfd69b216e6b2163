package review

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/monitor"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/store/quota"
)

// Logs draws from what is logged. logbook.Store does.
type Logs interface {
	eval.LogScanner
	DrawRuns(ctx context.Context, ws tenant.ID, f *logbook.RunFilters, size int, seed uint64) ([]logbook.Trace, error)
	Expiry(ctx context.Context, ws tenant.ID, requestID, trace string) (at clock.Time, steps int64, err error)
}

// Scans reads what judges said of traffic. monitor.Store does.
type Scans interface {
	Judgements(ctx context.Context, ws tenant.ID, criterionID, scanID string, v judge.Verdict, limit int,
	) ([]monitor.Judgement, error)
	Uncertain(ctx context.Context, ws tenant.ID, criterionID, scanID string, limit int) ([]monitor.Judgement, error)
}

// Reports reads what judges said of labels. calibration.Store does.
type Reports interface {
	Report(ctx context.Context, ws tenant.ID, criterionID string) (calibration.Report, error)
	// Estimate returns what a calibration would cost, and how many items it would judge.
	Estimate(ctx context.Context, ws tenant.ID, criterionID string, fresh bool) (cost money.Nano, total int64, err error)
}

// kind is the kind of the job that fills a queue.
const kind = "review"

// A fill is what a job adds to a queue.
type fill struct {
	ID, QueueID, Source string
}

// work fills a queue. It writes everything in one transaction, so that a run that was interrupted leaves nothing.
func (s *Store) work(ctx context.Context, run *job.Run) error {
	in := s.DB.In(run.Workspace)
	f, err := db.One[fill](ctx, in,
		`SELECT id, queue_id, source FROM review_fills WHERE workspace_id = $1 AND id = $2`, run.ID)
	if err != nil {
		return fmt.Errorf("read what to fill: %w", err)
	}
	q, err := find(ctx, in, f.QueueID)
	if err != nil {
		return err
	}
	var from QueueSource
	if err := json.Unmarshal([]byte(f.Source), &from); err != nil {
		return fmt.Errorf("read the source of %s: %w", f.ID, err)
	}
	found, missing, err := s.draw(ctx, run.Workspace, q, &from, seedOf(f.ID))
	if err != nil {
		return err
	}
	if q.Blind && from.Kind == fromScan { // the order must not tell what the judge said
		shuffle(found, f.ID)
	}
	return run.Finish(ctx, func(tx *db.Tx, tally *job.Tally) error {
		added, err := s.add(ctx, tx, run.Workspace, q.ID, found)
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx.In(run.Workspace), `
			UPDATE review_fills SET added = $3, missing = $4 WHERE workspace_id = $1 AND id = $2`,
			f.ID, added, missing); err != nil {
			return fmt.Errorf("count what was added to %s: %w", q.ID, err)
		}
		tally.Done, tally.Total = added, added
		return nil
	})
}

// seedOf returns the seed of a fill: the same when it is run again.
func seedOf(fillID string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(fillID))
	return sum.Sum64()
}

// shuffle orders items by a digest.
func shuffle(all []itemRecord, by string) {
	key := func(i itemRecord) uint64 {
		sum := sha256.Sum256([]byte(by + " " + i.Ref))
		return binary.BigEndian.Uint64(sum[:])
	}
	slices.SortFunc(all, func(a, b itemRecord) int {
		if key(a) < key(b) {
			return -1
		}
		return 1
	})
}

// add adds items after those that the queue has. Those that it has already stay as they are.
func (s *Store) add(ctx context.Context, tx *db.Tx, ws tenant.ID, queueID string, all []itemRecord,
) (added int64, err error) {
	in := tx.In(ws)
	type size struct{ Last, N int64 }
	const count = `SELECT COALESCE(MAX(position), 0) AS last, COUNT(*) AS n FROM review_items
		WHERE workspace_id = $1 AND queue_id = $2`
	before, err := db.One[size](ctx, in, count, queueID)
	if err != nil {
		return 0, fmt.Errorf("count the items of %s: %w", queueID, err)
	}
	rows, seen := [][]any{}, map[string]bool{}
	for _, i := range all {
		if seen[i.Ref] {
			continue
		}
		seen[i.Ref] = true
		rows = append(rows, []any{
			ws, queueID, i.Ref, id.New("ri"), before.Last + int64(len(rows)) + 1, max(i.Steps, 1), i.Reason,
			string(i.Judge), i.Grade, i.Critique, i.ExpiresAt, itemOpen, false, "",
		})
	}
	if err := db.Merge(ctx, tx.Across("the rows name their workspace"), "review_items", []string{
		"workspace_id", "queue_id", "ref", "id", "position", "steps", "reason", "judge", "grade", "critique",
		"expires_at", "state", "conflict", "lost",
	}, 3, "ref = review_items.ref", rows); err != nil {
		return 0, fmt.Errorf("add items to %s: %w", queueID, err)
	}
	after, err := db.One[size](ctx, in, count, queueID)
	if err != nil {
		return 0, fmt.Errorf("count the items of %s: %w", queueID, err)
	}
	added = after.N - before.N
	return added, quota.Check(ctx, in, quota.ReviewItems, int(added))
}

// draw finds the items of a source.
func (s *Store) draw(ctx context.Context, ws tenant.ID, q *queueRecord, from *QueueSource, seed uint64,
) (found []itemRecord, missing int64, err error) {
	if from.Kind != fromDisagreements { // whose items have their own copies
		if err := s.Contents.Open(ctx, ws); err != nil {
			return nil, 0, err
		}
	}
	switch from.Kind {
	case fromLogs:
		found, err = s.drawLogs(ctx, ws, from, seed)
	case fromTraces:
		found, err = s.drawRuns(ctx, ws, from, seed)
	case fromScan:
		var said []monitor.Judgement
		said, err = s.Scans.Judgements(ctx, ws, q.CriterionID, from.ScanID, from.Verdict, from.N)
		found = judged(said, "Part of a scan.")
	case fromUncertain:
		var said []monitor.Judgement
		said, err = s.Scans.Uncertain(ctx, ws, q.CriterionID, from.ScanID, from.N)
		found = judged(said, "The judge was not sure of it.")
	case fromDisagreements:
		found, err = s.disagreements(ctx, ws, q.CriterionID, from.N)
	case fromIDs:
		return s.named(ctx, ws, from)
	}
	return found, 0, err
}

func (s *Store) drawLogs(ctx context.Context, ws tenant.ID, from *QueueSource, seed uint64,
) (found []itemRecord, err error) {
	var filters logbook.Filters
	if from.Filters != nil {
		filters = *from.Filters.Filters()
	}
	drawn, err := eval.DrawLogs(ctx, s.Logs, ws, &filters, from.N, seed)
	for _, row := range drawn {
		found = append(found, itemRecord{
			Ref: ofRequest + row.RequestID, Reason: "Part of a random sample.", ExpiresAt: row.ExpiresAt,
		})
	}
	return found, err
}

func (s *Store) drawRuns(ctx context.Context, ws tenant.ID, from *QueueSource, seed uint64,
) (found []itemRecord, err error) {
	var filters logbook.RunFilters
	if from.Runs != nil {
		filters = *from.Runs
	}
	drawn, err := s.Logs.DrawRuns(ctx, ws, &filters, from.N, seed)
	if err != nil {
		return nil, err
	}
	for _, run := range drawn {
		at, steps, err := s.Logs.Expiry(ctx, ws, "", run.ID)
		if err != nil {
			return nil, err
		}
		if steps > 0 {
			found = append(found, itemRecord{
				Ref: ofTrace + run.ID, Reason: "Part of a random sample of runs.", ExpiresAt: at, Steps: steps,
			})
		}
	}
	return found, nil
}

// judged makes items of what a judge said.
func judged(said []monitor.Judgement, why string) (found []itemRecord) {
	for _, one := range said {
		found = append(found, itemRecord{
			Ref: ofRequest + one.RequestID, Reason: why, Judge: one.Judge, Grade: one.Grade, Critique: one.Critique,
			ExpiresAt: one.ExpiresAt,
		})
	}
	return found
}

// disagreements makes items of what judge and people disagree on in the last calibration: of the labels' own copies.
func (s *Store) disagreements(ctx context.Context, ws tenant.ID, criterionID string, n int,
) (found []itemRecord, err error) {
	report, err := s.Reports.Report(ctx, ws, criterionID)
	for _, one := range report.Remaining[:min(n, len(report.Remaining))] {
		found = append(found, itemRecord{
			Ref: ofLabel + one.LabelID, Reason: "The judge and a person disagree on it.", Judge: one.JudgeVerdict,
			Grade: one.JudgeGrade, Critique: one.Critique,
		})
	}
	return found, err
}

// named makes items of ids, and counts those that are not logged.
func (s *Store) named(ctx context.Context, ws tenant.ID, from *QueueSource,
) (found []itemRecord, missing int64, err error) {
	add := func(r, requestID, trace string) error {
		at, steps, err := s.Logs.Expiry(ctx, ws, requestID, trace)
		switch {
		case err != nil:
			return err
		case steps == 0:
			missing++
			return nil
		case trace == "":
			steps = 1
		}
		found = append(found, itemRecord{Ref: r, Reason: "Chosen by hand.", ExpiresAt: at, Steps: steps})
		return nil
	}
	for _, one := range from.RequestIDs {
		if err := add(ofRequest+one, one, ""); err != nil {
			return nil, 0, err
		}
	}
	for _, one := range from.TraceIDs {
		if err := add(ofTrace+one, "", one); err != nil {
			return nil, 0, err
		}
	}
	return found, missing, nil
}
