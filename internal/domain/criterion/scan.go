package criterion

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"sync"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// Logs are where exchanges are drawn from.
type Logs interface {
	Draw(ctx context.Context, ws tenant.ID, f *logbook.Filters, size int, seed uint64, each func(*logbook.Drawn) bool) (pool int, err error)
	Since(ctx context.Context, ws tenant.ID, f *logbook.Filters, after clock.Time, most int) ([]logbook.Drawn, error)
	Newest(ctx context.Context, ws tenant.ID) (clock.Time, error)
	Read(ctx context.Context, ws tenant.ID, id string) (judge.Step, error)
}

// A Sample says what is to be scanned.
type Sample struct {
	Size    int      `json:"sample_size,omitempty" default:"200" minimum:"1" maximum:"5000" doc:"How many exchanges, drawn at random"`
	Filters *Filters `json:"filters,omitempty" doc:"From which; those of the criterion by default"`
}

// A Scan judges a sample of logged exchanges.
type Scan struct {
	ID          string        `json:"id"`
	Object      string        `json:"object" enum:"scan"`
	CriterionID string        `json:"criterion_id"`
	Version     int64         `json:"criterion_version"`
	SampleSize  int           `json:"sample_size"`
	Filters     Filters       `json:"filters"`
	Pool        int           `json:"pool" doc:"How many exchanges the sample was drawn from, at most the 100,000 newest that match"`
	Result      *Rates        `json:"result" doc:"null until it is done"`
	CreatedBy   tenant.UserID `json:"created_by"`
	job.Job
}

// Rates are what a judge found in traffic, as it found it and corrected for its known errors.
type Rates struct {
	N            int64          `json:"n" doc:"Verdicts"`
	Passes       int64          `json:"passes"`
	Failed       int64          `json:"failed" doc:"Exchanges without a verdict: the judge failed, or the exchange was gone"`
	Rate         *float64       `json:"rate" doc:"As the judge says"`
	RateCI       *stat.Interval `json:"rate_ci" doc:"At 95 %, Wilson: of the judge's own rate, not of the truth"`
	Corrected    *float64       `json:"corrected_rate" doc:"Corrected for the errors that the judge's certificate tells of (Rogan–Gladen)"`
	CorrectedCI  *stat.Interval `json:"corrected_rate_ci" doc:"At 95 %, Lang–Reiczigel: with the sampling error of the calibration"`
	NotCorrected *string        `json:"not_corrected" enum:"no_verdicts,no_certificate,certificate_void,few_labels,judge_not_proven,contradicted" doc:"Why it is not corrected"`
	Certificate  *string        `json:"certificate_id" doc:"By which it was corrected"`
	Failing      []Failing      `json:"failing_examples" nullable:"false" doc:"Some of what failed; the rows have all"`
}

// A Failing is an exchange that a judge fails.
type Failing struct {
	LogID     string  `json:"log_id"`
	RequestID *string `json:"request_id"`
	Grade     float64 `json:"grade"`
	Critique  string  `json:"critique"`
}

// asked is a scan's sample as it is kept.
type askedScan struct {
	Size    int         `json:"sample_size"`
	Filters Filters     `json:"filters"`
	Pool    int         `json:"pool"`
	MaxCost *money.Nano `json:"max_cost_usd,omitempty"`
}

func (k *keptInquiry) scan() (Scan, error) {
	s := Scan{ID: k.ID, Object: "scan", CriterionID: k.CriterionID, Version: k.Version, CreatedBy: k.CreatedBy, Job: k.Job}
	var asked askedScan
	var result Rates
	if err := k.read(&asked, &result); err != nil {
		return s, err
	}
	s.SampleSize, s.Filters, s.Pool = asked.Size, asked.Filters, asked.Pool
	if k.Result != "" {
		s.Result = &result
	}
	return s, nil
}

// drawing is what a scan would judge.
type drawing struct {
	asked    askedScan
	rows     []logbook.Drawn // without their texts
	total    int64
	estimate money.Nano
}

// draw takes a sample, or as much of it as an estimate needs, and says what it costs to judge it.
func (s *Store) draw(ctx context.Context, ws tenant.ID, c *kept, in Sample, logs Logs, bench *Bench, seed uint64, whole bool) (*drawing, error) {
	crit, err := c.criterion()
	if err != nil {
		return nil, err
	}
	d := &drawing{asked: askedScan{Size: in.Size, Filters: crit.Filters}}
	if in.Filters != nil {
		d.asked.Filters = *in.Filters
	}
	if err := d.asked.Filters.Check("filters."); err != nil {
		return nil, err
	}
	var some []judge.Subject
	d.asked.Pool, err = logs.Draw(ctx, ws, d.asked.Filters.Filters(), in.Size, seed, func(row *logbook.Drawn) bool {
		if len(some) < foreseen {
			some = append(some, judge.Subject{Steps: []judge.Step{row.Step()}})
		}
		d.rows = append(d.rows, logbook.Drawn{At: row.At, ID: row.ID, RequestID: row.RequestID, ExpiresAt: row.ExpiresAt})
		return whole || len(some) < foreseen
	})
	if err != nil {
		return nil, err
	}
	if len(d.rows) == 0 {
		return nil, fault.Precondition.New("no logged exchange matches the filters")
	}
	told, err := brief(ctx, s.db.In(ws), c)
	if err != nil {
		return nil, err
	}
	d.total = int64(min(in.Size, d.asked.Pool))
	d.estimate, err = bench.foresee(ctx, ws, c.JudgeModel, told, some, d.total, false)
	return d, err
}

// Scan begins to judge a sample of logs.
func (s *Store) Scan(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, in Sample, how Spending, logs Logs, bench *Bench) (Scan, error) {
	c, err := find(ctx, s.db.In(ws), criterionID)
	if err != nil {
		return Scan{}, err
	}
	d, err := s.draw(ctx, ws, c, in, logs, bench, uint64(clock.Now()), true)
	if err != nil {
		return Scan{}, err
	}
	if err := how.covers(d.estimate); err != nil {
		return Scan{}, err
	}
	d.asked.MaxCost = how.MaxCostUSD
	var made Scan
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		c, err := find(ctx, tx.In(ws), criterionID)
		if err != nil {
			return err
		}
		begun, err := scans.begin(ctx, tx, ws, by, c, d.asked, d.total, d.estimate)
		if err != nil {
			return err
		}
		if err := pend(ctx, tx, ws, begun.ID, d.rows); err != nil {
			return err
		}
		made, err = begun.scan()
		return err
	})
	return made, err
}

// pend gives exchanges a row each, to be judged.
func pend(ctx context.Context, tx *db.Tx, ws tenant.ID, runID string, all []logbook.Drawn) error {
	rows := make([][]any, len(all))
	for i, l := range all {
		rows[i] = []any{ws, runID, l.ID, l.At, true, "", 0.0, "", "", l.RequestID, l.ExpiresAt}
	}
	err := db.Insert(ctx, tx.Across("the rows name their workspace"), "judged_logs",
		[]string{"workspace_id", "run_id", "log_id", "at", "pending", "judge", "grade", "critique", "failure", "request_id", "expires_at"}, rows)
	if err != nil {
		return fmt.Errorf("keep the sample: %w", err)
	}
	return nil
}

// scan is the work of a scan.
func (s *Store) scan(logs Logs, open func(context.Context, tenant.ID) error, bench *Bench) job.Work {
	return func(ctx context.Context, run *job.Run) error {
		k, err := scans.of(ctx, s.db, run)
		if err != nil {
			return err
		}
		c, err := find(ctx, s.db.In(run.Workspace), k.CriterionID)
		if err != nil {
			return err
		}
		if err := k.current(c); err != nil {
			return err
		}
		var asked askedScan
		if err := k.read(&asked, new(Rates)); err != nil {
			return err
		}
		told, err := brief(ctx, s.db.In(run.Workspace), c)
		if err != nil {
			return err
		}
		purse := purse{most: asked.MaxCost}
		if err := bench.catchUp(ctx, run, k.CriterionID, &purse); err != nil {
			return err
		}
		lost := 0
		for {
			rows, err := db.Query[pendingLog](ctx, s.db.In(run.Workspace), `
				SELECT log_id, expires_at FROM judged_logs WHERE workspace_id = $1 AND run_id = $2 AND pending ORDER BY log_id LIMIT $3`, k.ID, pendingAtOnce)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return s.sumUp(ctx, run, k)
			}
			if err := open(ctx, run.Workspace); err != nil { // who turns logging off wants nothing of it read
				return err
			}
			found, asking := s.judgeLogs(ctx, run.Workspace, c, k.ID, told, rows, logs, bench, &purse)
			if lost = stillLost(lost, found); asking == nil && lost >= hopeless {
				return fault.Precondition.New("the judge model %s gives no answers", c.JudgeModel)
			}
			saving := context.WithoutCancel(ctx)
			if err := run.Save(saving, func(tx *db.Tx, tally *job.Tally) error {
				n, cost, err := noteLogs(saving, tx, run.Workspace, k.ID, found)
				tally.Done += n
				tally.Cost += cost
				return err
			}); err != nil {
				return err
			}
			if asking != nil {
				return asking
			}
			if c, err = find(ctx, s.db.In(run.Workspace), k.CriterionID); err != nil {
				return err
			}
			if err := k.current(c); err != nil {
				return err
			}
		}
	}
}

// current refuses to go on with a judge that is told something else meanwhile.
func (k *keptInquiry) current(c *kept) error {
	if c.Version != k.Version {
		return fault.Conflict("the criterion has changed meanwhile: version %d is now %d", k.Version, c.Version)
	}
	return nil
}

type pendingLog struct {
	LogID     string
	ExpiresAt clock.Time
}

// stillLost counts the rows in a row that a judge left unanswered. What it answered long ago says nothing of today.
func stillLost(lost int, found map[string]finding) int {
	for _, f := range found {
		switch {
		case f.remembered:
		case strings.HasPrefix(f.Failure, unreachable):
			lost++
		default:
			return 0
		}
	}
	return lost
}

// judgeLogs asks a judge about logged exchanges. What it found before an error is found.
func (s *Store) judgeLogs(ctx context.Context, ws tenant.ID, c *kept, origin string, told *judge.Brief, rows []pendingLog, logs Logs, bench *Bench, purse *purse) (map[string]finding, error) {
	var mu sync.Mutex
	found := make(map[string]finding, len(rows))
	err := each(ctx, bench.atOnce.Load(), rows, func(ctx context.Context, r pendingLog) error {
		if err := purse.open(); err != nil {
			return err
		}
		f := finding{Failure: "gone: the exchange was deleted"}
		step, err := logs.Read(ctx, ws, r.LogID)
		switch {
		case err == nil:
			subject := judge.Subject{Steps: []judge.Step{step}}
			f, err = bench.ask(ctx, ws, &question{criterionID: c.ID, origin: origin, model: c.JudgeModel, brief: told, subject: &subject, expires: r.ExpiresAt})
			if err != nil {
				return err
			}
		case fault.From(err).Status != http.StatusNotFound:
			return err
		}
		purse.spent.Add(int64(f.Cost))
		mu.Lock()
		defer mu.Unlock()
		found[r.LogID] = f
		return nil
	})
	return found, err
}

// noteLogs writes down what a judge said of exchanges.
func noteLogs(ctx context.Context, tx *db.Tx, ws tenant.ID, runID string, found map[string]finding) (done int64, cost money.Nano, err error) {
	for logID, f := range found {
		n, err := db.Exec(ctx, tx.In(ws), `
			UPDATE judged_logs SET pending = FALSE, judge = $4, grade = $5, critique = $6, failure = $7
			WHERE workspace_id = $1 AND run_id = $2 AND log_id = $3 AND pending`, runID, logID, f.Verdict, f.Grade, storable(f.Critique), storable(f.Failure))
		if err != nil {
			return 0, 0, fmt.Errorf("keep what the judge said of %s: %w", logID, err)
		}
		done, cost = done+n, cost+f.Cost
	}
	return done, cost, nil
}

// shownFailing is how many failing examples a result shows.
const shownFailing = 20

// sumUp ends a scan with what its rows come to.
func (s *Store) sumUp(ctx context.Context, run *job.Run, k *keptInquiry) error {
	return run.Finish(ctx, func(tx *db.Tx, _ *job.Tally) error {
		in := tx.In(run.Workspace)
		type cell struct {
			Judge judge.Verdict
			N     int64
		}
		cells, err := db.Query[cell](ctx, in, `SELECT judge, COUNT(*) AS n FROM judged_logs WHERE workspace_id = $1 AND run_id = $2 GROUP BY judge`, k.ID)
		if err != nil {
			return fmt.Errorf("count the verdicts of %s: %w", k.ID, err)
		}
		var passes, fails, failed int64
		for _, c := range cells {
			switch c.Judge {
			case judge.Pass:
				passes = c.N
			case judge.Fail:
				fails = c.N
			default:
				failed = c.N
			}
		}
		r, err := rates(ctx, in, k.CriterionID, k.Version, passes, passes+fails)
		if err != nil {
			return err
		}
		r.Failed = failed
		return conclude(ctx, in, k.ID, r)
	})
}

// readScan is a scan with some of what failed. Those are read, not kept: they go with the exchanges that they are of.
func (s *Store) readScan(ctx context.Context, ws tenant.ID, criterionID, name string) (Scan, error) {
	k, err := scans.find(ctx, s.db.In(ws), criterionID, name)
	if err != nil {
		return Scan{}, err
	}
	found, err := k.scan()
	if err == nil && found.Result != nil {
		found.Result.Failing, err = failing(ctx, s.db.In(ws), name)
	}
	return found, err
}

// failing are some of what a judge fails, the newest first.
func failing(ctx context.Context, in db.Scoped, runID string) ([]Failing, error) {
	rows, err := judged(ctx, in, runID, judge.Fail, shownFailing, 0)
	all := make([]Failing, 0, len(rows))
	for _, row := range rows {
		all = append(all, Failing{LogID: row.LogID, RequestID: row.RequestID, Grade: *row.Grade, Critique: row.Critique})
	}
	return all, err
}

// rates are x passes of n by a version of a judge, corrected if its certificate is of that version and allows it.
func rates(ctx context.Context, in db.Scoped, criterionID string, version, x, n int64) (Rates, error) {
	r := Rates{N: n, Passes: x, Failing: []Failing{}}
	if n > 0 {
		p, ci := float64(x)/float64(n), stat.Wilson(x, n, trust.Confidence)
		r.Rate, r.RateCI = &p, &ci
	}
	why := func(reason string) (Rates, error) {
		r.NotCorrected = &reason
		return r, nil
	}
	k, err := lastCertificate(ctx, in, criterionID)
	switch {
	case err != nil:
		return r, err
	case k == nil:
		return why("no_certificate")
	case k.VoidedAt > 0 || k.Version != version:
		return why("certificate_void")
	}
	certificate, err := k.certificate()
	if err != nil {
		return r, err
	}
	correction, refusal := stat.Correctable(stat.Table(certificate.Matrix), trust.Confidence)
	if refusal != "" {
		return why(string(refusal))
	}
	rate, interval, refusal := correction.RoganGladen(x, n)
	if refusal != "" {
		return why(string(refusal))
	}
	r.Corrected, r.CorrectedCI, r.Certificate = &rate, &interval, &certificate.ID
	return r, nil
}

// A Judged is what a judge said of a logged exchange.
type Judged struct {
	LogID     string         `json:"log_id"`
	RequestID *string        `json:"request_id"`
	Verdict   *judge.Verdict `json:"verdict" enum:"pass,fail" doc:"null without one"`
	Grade     *float64       `json:"grade"`
	Critique  string         `json:"critique"`
	Failure   *string        `json:"failure" doc:"Why there is no verdict"`
}

func judged(ctx context.Context, in db.Scoped, runID string, v judge.Verdict, limit, offset int) ([]Judged, error) {
	type row struct {
		LogID, RequestID string
		Judge            judge.Verdict
		Grade            float64
		Critique         string
		Failure          string
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT log_id, request_id, judge, grade, critique, failure FROM judged_logs
		WHERE workspace_id = $1 AND run_id = $2 AND NOT pending AND ($3 = '' OR judge = $3) ORDER BY log_id DESC LIMIT $4 OFFSET $5`, runID, v, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read what was judged: %w", err)
	}
	all := make([]Judged, len(rows))
	for i, r := range rows {
		all[i] = Judged{LogID: r.LogID, RequestID: given(r.RequestID), Verdict: given(r.Judge), Critique: r.Critique, Failure: given(r.Failure)}
		if r.Judge != "" {
			all[i].Grade = &rows[i].Grade
		}
	}
	return all, nil
}

// seedOf is a number that a text stands for.
func seedOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}
