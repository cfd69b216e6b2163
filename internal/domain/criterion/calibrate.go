package criterion

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// calibrate is the work of a calibration: a row for each label, an answer for each row, and what they come to.
func (s *Store) calibrate(bench *Bench) job.Work {
	return func(ctx context.Context, run *job.Run) error {
		in := s.db.In(run.Workspace)
		k, err := db.One[keptCalibration](ctx, in, `SELECT `+calibrationColumns+` AND t.id = $2`, run.ID)
		if err != nil {
			return fmt.Errorf("read calibration %s: %w", run.ID, err)
		}
		c, err := find(ctx, in, k.CriterionID)
		if err != nil {
			return err
		}
		if err := k.current(c); err != nil {
			return err
		}
		if err := s.enrol(ctx, run, &k, c); err != nil {
			return err
		}
		purse := purse{most: k.MaxCost}
		if err := bench.catchUp(ctx, run, k.CriterionID, &purse); err != nil {
			return err
		}
		told, err := brief(ctx, in, c)
		if err != nil {
			return err
		}
		if err := s.judgeRows(ctx, run, &k, told, bench, &purse); err != nil {
			return err
		}
		return s.align(ctx, run, &k)
	}
}

// current refuses to measure a judge that is told something else meanwhile.
func (k *keptCalibration) current(c *kept) error {
	if k.Version != c.Version {
		return fault.Conflict("the criterion has changed while it was calibrated: version %d is now %d", k.Version, c.Version)
	}
	return nil
}

// stillCurrent is current, of the criterion as it is now.
func (k *keptCalibration) stillCurrent(ctx context.Context, in db.Scoped) error {
	c, err := find(ctx, in, k.CriterionID)
	if err != nil {
		return err
	}
	return k.current(c)
}

// enrolAtOnce is how many labels get their rows in one transaction.
const enrolAtOnce = 256

// enrol gives every label that stands, and in one half, a row.
func (s *Store) enrol(ctx context.Context, run *job.Run, k *keptCalibration, c *kept) error {
	type row struct {
		ID, RequestID string
		Item          []byte
		InReportHalf  bool
		Straddles     bool
		Standing      judge.Verdict
		Kind          label.Kind
	}
	shots, err := parseShots(c.Shots)
	if err != nil {
		return fmt.Errorf("read the shots of %s: %w", c.ID, err)
	}
	shown := shotLabels(shots)
	for more := k.Enrolled < k.Last; more; {
		err := run.Tx(ctx, func(tx *db.Tx, tally *job.Tally) error {
			in := tx.In(run.Workspace)
			from, err := db.One[string](ctx, in, `SELECT enrolled FROM calibrations WHERE workspace_id = $1 AND id = $2`, k.ID)
			if err != nil {
				return err
			}
			labels, err := db.Query[row](ctx, in, `
				SELECT id, request_id, item, in_report_half, straddles, CASE WHEN kind = '' THEN verdict ELSE adjudicated END AS standing, kind
				FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND id > $3 AND id <= $4 ORDER BY id LIMIT $5`, k.CriterionID, from, k.Last, enrolAtOnce)
			if err != nil {
				return err
			}
			rows := make([][]any, 0, len(labels))
			to := k.Last
			for _, l := range labels {
				if l.Standing != "" && !l.Straddles {
					rows = append(rows, []any{
						run.Workspace, k.ID, l.ID, l.RequestID, l.Item, l.InReportHalf, slices.Contains(shown, l.ID), string(l.Standing), string(l.Standing),
						string(l.Kind), draw(k.CriterionID, l.ID), true, "", 0.0, "", "",
					})
				}
			}
			if more = len(labels) == enrolAtOnce; more {
				to = labels[len(labels)-1].ID
			}
			if err := db.Insert(ctx, tx.Across("the rows name their workspace"), "calibration_rows", []string{
				"workspace_id", "calibration_id", "label_id", "request_id", "item", "in_report_half", "shown", "human", "standing",
				"ruling", "draw", "pending", "judge", "grade", "critique", "failure",
			}, rows); err != nil {
				return err
			}
			_, err = db.Exec(ctx, in, `UPDATE calibrations SET enrolled = $3 WHERE workspace_id = $1 AND id = $2`, k.ID, to)
			if !more && err == nil {
				tally.Total, err = db.One[int64](ctx, in, `SELECT COUNT(*) FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2`, k.ID)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("enrol labels: %w", err)
		}
	}
	return nil
}

// draw is a label's place in the blind samples of a criterion: the same in each calibration, so that what was looked at stays so.
func draw(criterionID, labelID string) int64 {
	sum := sha256.Sum256([]byte("blind sample\n" + criterionID + "\n" + labelID))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}

// pendingAtOnce is how many rows are taken up together, and written together when they are judged.
const pendingAtOnce = 32

// hopeless is how many rows in a row a judge may leave unanswered before it is given up: it is not the rows, then.
const hopeless = 24

// judgeRows judges the rows that are pending.
func (s *Store) judgeRows(ctx context.Context, run *job.Run, k *keptCalibration, told *judge.Brief, bench *Bench, purse *purse) error {
	type row struct {
		LabelID string
		Item    []byte
	}
	lost := 0
	for {
		rows, err := db.Query[row](ctx, s.db.In(run.Workspace), `
			SELECT label_id, item FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND pending ORDER BY label_id LIMIT $3`, k.ID, pendingAtOnce)
		if err != nil || len(rows) == 0 {
			return err
		}
		var mu sync.Mutex
		found := make(map[string]finding, len(rows))
		asking := each(ctx, bench.atOnce.Load(), rows, func(ctx context.Context, r row) error {
			if err := purse.open(); err != nil {
				return err
			}
			subject, err := label.Item(ctx, s.db.In(run.Workspace), r.Item)
			f := finding{Failure: "gone: the label was deleted"}
			if err == nil {
				f, err = bench.ask(ctx, run.Workspace, &question{criterionID: k.CriterionID, origin: k.ID, model: k.JudgeModel, brief: told, subject: &subject, fresh: k.Fresh})
			}
			if err != nil && !label.Gone(err) {
				return err
			}
			purse.spent.Add(int64(f.Cost))
			mu.Lock()
			defer mu.Unlock()
			found[r.LabelID] = f
			return nil
		})
		if lost = stillLost(lost, found); asking == nil && lost >= hopeless {
			return k.silent()
		}
		saving := context.WithoutCancel(ctx) // what was answered is kept, whatever ends
		if err := run.Save(saving, func(tx *db.Tx, tally *job.Tally) error { return record(saving, tx, run.Workspace, k.ID, found, tally) }); err != nil {
			return err
		}
		if err := k.stillCurrent(ctx, s.db.In(run.Workspace)); err != nil {
			return err
		}
		if asking != nil {
			return asking
		}
	}
}

// silent refuses to measure a judge that said nothing at all.
func (k *keptCalibration) silent() error {
	return fault.Precondition.New("the judge model %s gives no answers: the calibration can be started again when it does", k.JudgeModel)
}

// record writes down what judges said of some rows.
func record(ctx context.Context, tx *db.Tx, ws tenant.ID, calibrationID string, found map[string]finding, tally *job.Tally) error {
	for labelID, f := range found {
		n, err := db.Exec(ctx, tx.In(ws), `
			UPDATE calibration_rows SET pending = FALSE, judge = $4, grade = $5, critique = $6, failure = $7
			WHERE workspace_id = $1 AND calibration_id = $2 AND label_id = $3 AND pending`,
			calibrationID, labelID, f.Verdict, f.Grade, storable(f.Critique), storable(f.Failure))
		if err != nil {
			return fmt.Errorf("keep what the judge said of %s: %w", labelID, err)
		}
		tally.Done += n
		tally.Cost += f.Cost
	}
	return nil
}

// storable is a text that both engines can keep.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, string(utf8.RuneError)), "\x00", string(utf8.RuneError))
}

// align holds the answers against what stands now, and signs what comes of it.
func (s *Store) align(ctx context.Context, run *job.Run, k *keptCalibration) error {
	return run.Finish(ctx, func(tx *db.Tx, _ *job.Tally) error {
		in := tx.In(run.Workspace)
		c, err := find(ctx, in, k.CriterionID)
		if err != nil {
			return err
		}
		if err := k.current(c); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, in, `UPDATE calibration_rows SET human = standing WHERE workspace_id = $1 AND calibration_id = $2 AND changed`, k.ID); err != nil {
			return fmt.Errorf("align the rows of %s: %w", k.ID, err)
		}
		answered, err := db.One[int64](ctx, in, `SELECT COUNT(*) FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND failure NOT LIKE $3`, k.ID, unreachable+"%")
		if err != nil {
			return fmt.Errorf("count the answers of %s: %w", k.ID, err)
		}
		if answered == 0 {
			return k.silent()
		}
		halves, err := count(ctx, in, k.ID)
		if err != nil {
			return err
		}
		text, err := json.Marshal(halves)
		if err != nil {
			return fmt.Errorf("write counts: %w", err)
		}
		last, err := db.One[clock.Time](ctx, in, `SELECT COALESCE(MAX(aligned_at), 0) FROM calibrations WHERE workspace_id = $1 AND criterion_id = $2`, k.CriterionID)
		if err != nil {
			return fmt.Errorf("find the last calibration: %w", err)
		}
		now := max(clock.Now(), last+1) // what is measured later is later, wherever the clock stands
		if _, err := db.Exec(ctx, in, `UPDATE calibrations SET counts = $3, aligned_at = $4 WHERE workspace_id = $1 AND id = $2`, k.ID, string(text), now); err != nil {
			return fmt.Errorf("keep the counts of %s: %w", k.ID, err)
		}
		return s.certify(tx.Bind(ctx), tx, run.Workspace, c, k, &halves, now)
	})
}

// count counts the rows of a calibration, but for what the judge was shown.
func count(ctx context.Context, in db.Scoped, calibrationID string) (trust.Halves, error) {
	type cell struct {
		InReportHalf bool
		Human, Judge judge.Verdict
		N            int64
	}
	cells, err := db.Query[cell](ctx, in, `
		SELECT in_report_half, human, judge, COUNT(*) AS n FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND NOT shown GROUP BY in_report_half, human, judge`,
		calibrationID)
	if err != nil {
		return trust.Halves{}, fmt.Errorf("count the rows of %s: %w", calibrationID, err)
	}
	var h trust.Halves
	for _, c := range cells {
		h.Half(c.InReportHalf).Add(c.Human, c.Judge, c.N)
	}
	return h, nil
}
