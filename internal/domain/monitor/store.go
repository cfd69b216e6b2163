package monitor

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
)

// A Store keeps scans and monitors, and what judges said of logged exchanges. Every change is audited in its own
// transaction.
type Store struct {
	// Lag is how old an exchange must be to be monitored, where several servers store what they log: then the others
	// have stored theirs of that time too. Zero for the only server.
	Lag time.Duration

	db     *db.DB
	logs   Logs
	open   func(context.Context, tenant.ID) error
	judges *judging.Client
}

// NewStore returns a store on d. open refuses a workspace whose logs may not be read now.
func NewStore(d *db.DB, logs Logs, open func(context.Context, tenant.ID) error, judges *judging.Client) *Store {
	return &Store{db: d, logs: logs, open: open, judges: judges}
}

// A drawing is the sample of a scan, and the estimate of its cost.
type drawing struct {
	request  scanRequest
	rows     []logbook.Drawn // without their texts
	total    int64
	estimate money.Nano
}

// draw draws the sample of a scan, or as much of it as an estimate needs, and estimates what judging it costs.
func (s *Store) draw(ctx context.Context, ws tenant.ID, r *criterion.Record, in Sample, seed uint64, whole bool,
) (*drawing, error) {
	c, err := r.Criterion()
	if err != nil {
		return nil, err
	}
	d := &drawing{request: scanRequest{Size: in.Size, Filters: c.Filters}}
	if in.Filters != nil {
		d.request.Filters = in.Filters.Clean()
	}
	if err := d.request.Filters.Check("filters."); err != nil {
		return nil, err
	}
	var some []judge.Subject
	d.request.Pool, err = s.logs.Draw(ctx, ws, d.request.Filters.Filters(), in.Size, seed, func(row *logbook.Drawn) bool {
		if len(some) < judging.EstimateSamples {
			some = append(some, judge.Subject{Steps: []judge.Step{row.Step()}})
		}
		d.rows = append(d.rows, logbook.Drawn{
			At: row.At, ID: row.ID, RequestID: row.RequestID,
			ExpiresAt: row.ExpiresAt,
		})
		return whole || len(some) < judging.EstimateSamples
	})
	if err != nil {
		return nil, err
	}
	if len(d.rows) == 0 {
		return nil, fault.Precondition.New("no logged exchange matches the filters")
	}
	told, err := r.Instructions(ctx, s.db.In(ws))
	if err != nil {
		return nil, err
	}
	d.total = int64(min(in.Size, d.request.Pool))
	d.estimate, err = s.judges.EstimateAll(ctx, ws, r.JudgeModel, told, some, d.total, false)
	return d, err
}

// StartScan begins a scan.
func (s *Store) StartScan(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, in Sample,
	limit judging.Spending,
) (Scan, error) {
	c, err := criterion.Find(ctx, s.db.In(ws), criterionID)
	if err != nil {
		return Scan{}, err
	}
	d, err := s.draw(ctx, ws, c, in, uint64(clock.Now()), true)
	if err != nil {
		return Scan{}, err
	}
	if err := limit.Allows(d.estimate); err != nil {
		return Scan{}, err
	}
	d.request.MaxCost = limit.MaxCostUSD
	var started Scan
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		c, err := criterion.Find(ctx, tx.In(ws), criterionID)
		if err != nil {
			return err
		}
		t, err := scans.Start(ctx, tx, ws, by, &judging.NewTask{
			CriterionID: c.ID, Version: c.Version, Request: d.request, Total: d.total, Estimate: d.estimate,
		})
		if err != nil {
			return err
		}
		if err := insertPending(ctx, tx, ws, t.ID, d.rows); err != nil {
			return err
		}
		started, err = newScan(t)
		return err
	})
	return started, err
}

// Scan reads a scan with some of the exchanges that failed. They are read, and not kept in the result, because they are
// deleted with the logs.
func (s *Store) Scan(ctx context.Context, ws tenant.ID, criterionID, name string) (Scan, error) {
	t, err := scans.Find(ctx, s.db.In(ws), criterionID, name)
	if err != nil {
		return Scan{}, err
	}
	found, err := newScan(t)
	if err == nil && found.Result != nil {
		found.Result.Failing, err = failing(ctx, s.db.In(ws), name)
	}
	return found, err
}

// Scans reads the scans of a criterion, the newest first.
func (s *Store) Scans(ctx context.Context, ws tenant.ID, criterionID string, limit, offset int) ([]Scan, error) {
	if _, err := criterion.Find(ctx, s.db.In(ws), criterionID); err != nil {
		return nil, err
	}
	tasks, err := scans.List(ctx, s.db.In(ws), criterionID, limit, offset)
	if err != nil {
		return nil, err
	}
	all := make([]Scan, len(tasks))
	for i := range tasks {
		if all[i], err = newScan(&tasks[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ScanRows reads what a judge said in a scan, the newest exchanges first.
func (s *Store) ScanRows(ctx context.Context, ws tenant.ID, criterionID, name string, v judge.Verdict, limit,
	offset int,
) ([]Judged, error) {
	if _, err := scans.Find(ctx, s.db.In(ws), criterionID, name); err != nil {
		return nil, err
	}
	return judged(ctx, s.db.In(ws), name, v, limit, offset)
}

// insertPending adds a row for each exchange that is to be judged. runID is that of a scan, or of a criterion that
// monitors traffic.
func insertPending(ctx context.Context, tx *db.Tx, ws tenant.ID, runID string, all []logbook.Drawn) error {
	rows := make([][]any, len(all))
	for i, l := range all {
		rows[i] = []any{ws, runID, l.ID, l.At, true, "", 0.0, "", "", l.RequestID, l.ExpiresAt}
	}
	err := db.Insert(ctx, tx.Across("the rows name their workspace"), "judged_logs",
		[]string{
			"workspace_id", "run_id", "log_id", "at", "pending", "judge", "grade", "critique", "failure",
			"request_id", "expires_at",
		}, rows)
	if err != nil {
		return fmt.Errorf("insert the sample: %w", err)
	}
	return nil
}

// A pendingLog is an exchange that is to be judged.
type pendingLog struct {
	LogID     string
	ExpiresAt clock.Time
}

func (s *Store) pendingLogs(ctx context.Context, ws tenant.ID, runID string, limit int64) ([]pendingLog, error) {
	return db.Query[pendingLog](ctx, s.db.In(ws), `
		SELECT log_id, expires_at FROM judged_logs WHERE workspace_id = $1 AND run_id = $2 AND pending ORDER BY log_id
			LIMIT $3`, runID, limit)
}

// saveAnswers writes the answers to some rows. It returns how many were pending, and what the answers cost.
func saveAnswers(ctx context.Context, in db.Scoped, runID string, answers map[string]judging.Answer,
) (saved int64, cost money.Nano, err error) {
	for logID, a := range answers {
		n, err := db.Exec(ctx, in, `
			UPDATE judged_logs SET pending = FALSE, judge = $4, grade = $5, critique = $6, failure = $7
			WHERE workspace_id = $1 AND run_id = $2 AND log_id = $3 AND pending`,
			runID, logID, a.Verdict, a.Grade, judging.Storable(a.Critique), judging.Storable(a.Failure))
		if err != nil {
			return 0, 0, fmt.Errorf("store the answer about %s: %w", logID, err)
		}
		saved, cost = saved+n, cost+a.Cost
	}
	return saved, cost, nil
}

// finishScan counts the rows of a scan and saves the result.
func finishScan(ctx context.Context, in db.Scoped, t *judging.Task) error {
	type cell struct {
		Judge judge.Verdict
		N     int64
	}
	cells, err := db.Query[cell](ctx, in,
		`SELECT judge, COUNT(*) AS n FROM judged_logs WHERE workspace_id = $1 AND run_id = $2 GROUP BY judge`, t.ID)
	if err != nil {
		return fmt.Errorf("count the verdicts of %s: %w", t.ID, err)
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
	r, err := readRates(ctx, in, t.CriterionID, t.Version, passes, passes+fails)
	if err != nil {
		return err
	}
	r.Failed = failed
	return judging.SaveResult(ctx, in, t.ID, r)
}

// readRates computes rates with the criterion's last certificate.
func readRates(ctx context.Context, in db.Scoped, criterionID string, version, x, n int64) (Rates, error) {
	certificate, err := calibration.LastCertificate(ctx, in, criterionID)
	if err != nil {
		return Rates{}, err
	}
	return rates(certificate, version, x, n), nil
}

// maxFailing is how many failing exchanges a result shows.
const maxFailing = 20

// failing reads some of the exchanges that a judge fails, the newest first.
func failing(ctx context.Context, in db.Scoped, runID string) ([]Failing, error) {
	rows, err := judged(ctx, in, runID, judge.Fail, maxFailing, 0)
	all := make([]Failing, 0, len(rows))
	for _, row := range rows {
		all = append(all, Failing{
			LogID: row.LogID, RequestID: row.RequestID, Grade: *row.Grade,
			Critique: row.Critique,
		})
	}
	return all, err
}

// judged reads what a judge said of exchanges, the newest first. An empty verdict selects all.
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
		WHERE workspace_id = $1 AND run_id = $2 AND NOT pending AND ($3 = '' OR judge = $3) ORDER BY log_id DESC
			LIMIT $4 OFFSET $5`, runID, v, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read what was judged: %w", err)
	}
	all := make([]Judged, len(rows))
	for i, r := range rows {
		all[i] = Judged{
			LogID: r.LogID, RequestID: judging.Optional(r.RequestID), Verdict: judging.Optional(r.Judge),
			Critique: r.Critique, Failure: judging.Optional(r.Failure),
		}
		if r.Judge != "" {
			all[i].Grade = &rows[i].Grade
		}
	}
	return all, nil
}

const columns = `criterion_id, version, since, cursor, seen, passes, judged, failed, cost, spent, alarmed_at, reason
	FROM monitors WHERE workspace_id = $1 AND criterion_id = $2`

// Set changes how a judge monitors traffic. A new window begins.
func (s *Store) Set(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string,
	m criterion.MonitorSettings,
) (Monitor, error) {
	m = m.WithDefaults()
	if err := m.Check(); err != nil {
		return Monitor{}, err
	}
	newest, err := s.logs.Newest(ctx, ws)
	if err != nil {
		return Monitor{}, err
	}
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		r, err := criterion.Find(ctx, in, criterionID)
		if err != nil {
			return err
		}
		before, err := r.Criterion()
		if err != nil {
			return err
		}
		if err := criterion.SetMonitoring(ctx, in, criterionID, &m); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, in, `
			INSERT INTO monitors (workspace_id, criterion_id, version, since, cursor, seen, passes, judged, failed,
				cost, spent, alarmed_at, reason)
			VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 0, 0, 0, 0, '')
			ON CONFLICT (workspace_id, criterion_id) DO UPDATE
				SET version = excluded.version, since = excluded.since, cursor = excluded.cursor,
				seen = 0, passes = 0, judged = 0, failed = 0, spent = 0, alarmed_at = 0, reason = ''`,
			criterionID, r.Version, clock.Now(), newest); err != nil {
			return fmt.Errorf("begin to monitor with %s: %w", criterionID, err)
		}
		return audit.Record(ctx, tx, ws, by, "criterion.monitor", criterionID, before.Monitoring, m)
	})
	if err != nil {
		return Monitor{}, err
	}
	return s.Get(ctx, ws, criterionID)
}

// Get reads what a judge found in the current window.
func (s *Store) Get(ctx context.Context, ws tenant.ID, criterionID string) (Monitor, error) {
	in := s.db.In(ws)
	c, err := criterion.Find(ctx, in, criterionID)
	if err != nil {
		return Monitor{}, err
	}
	decoded, err := c.Criterion()
	if err != nil {
		return Monitor{}, err
	}
	m := Monitor{Object: "monitoring", CriterionID: criterionID, Version: c.Version}
	if decoded.Monitoring != nil {
		m.MonitorSettings = *decoded.Monitoring
	}
	m.MonitorSettings = m.WithDefaults()
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns, criterionID)
	if err != nil {
		return m, fmt.Errorf("read the monitor of %s: %w", criterionID, err)
	}
	switch {
	case r == nil:
		r = &record{}
	case r.Version != c.Version: // what another version found does not count for this one
		r = &record{Cost: r.Cost}
	default:
		m.Since = &r.Since
	}
	if m.Rates, err = readRates(ctx, in, criterionID, c.Version, r.Passes, r.Judged); err != nil {
		return m, err
	}
	m.Rates.Failed, m.Seen, m.Cost, m.Spent = r.Failed, r.Seen, r.Cost, r.Spent
	m.Exhausted = m.Enabled && m.MaxCostUSD != nil && r.Spent >= *m.MaxCostUSD
	if m.Rates.Failing, err = failing(ctx, in, criterionID); err != nil {
		return m, err
	}
	if r.AlarmedAt > 0 {
		m.Alert = &Alert{At: r.AlarmedAt, Reason: r.Reason}
	}
	return m, nil
}

func (s *Store) find(ctx context.Context, in db.Scoped, criterionID string) (record, error) {
	r, err := db.One[record](ctx, in, `SELECT `+columns, criterionID)
	if err != nil {
		return r, fmt.Errorf("read the monitor: %w", err)
	}
	return r, nil
}

// A batch is what one look at the logs found.
type batch struct {
	from    clock.Time // where the look began
	cursor  clock.Time // the newest exchange that was looked at
	seen    int64
	sampled []logbook.Drawn
	answers map[string]judging.Answer
}

// cost is what was paid for the answers.
func (b *batch) cost() (sum money.Nano) {
	for _, a := range b.answers {
		sum += a.Cost
	}
	return sum
}

// addCost counts answers that were paid and are not counted otherwise.
func addCost(ctx context.Context, in db.Scoped, criterionID string, cost money.Nano) error {
	_, err := db.Exec(ctx, in, `UPDATE monitors SET cost = cost + $3, spent = spent + $3
		WHERE workspace_id = $1 AND criterion_id = $2`, criterionID, cost)
	return err
}

// save counts a batch, and raises the alert if there is reason to. It returns the alert's reason, or "".
func (s *Store) save(ctx context.Context, ws tenant.ID, c *criterion.Criterion, b *batch) (reason string, err error) {
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		reason = ""
		in := tx.In(ws)
		r, err := s.find(ctx, in, c.ID)
		if err != nil {
			return err
		}
		if r.Cursor != b.from {
			return addCost(ctx, in, c.ID, b.cost()) // the settings were changed, or another node has counted meanwhile
		}
		now := clock.Now()
		if r.windowOver(c, now) {
			r = record{Cost: r.Cost, Since: now}
		}
		r.Version, r.Cursor, r.Seen = c.Version, b.cursor, r.Seen+b.seen
		if err := insertPending(ctx, tx, ws, c.ID, b.sampled); err != nil {
			return err
		}
		_, cost, err := saveAnswers(ctx, in, c.ID, b.answers)
		if err != nil {
			return err
		}
		r.add(b.answers, cost)
		if r.raiseAlert(c.Monitoring.AlertBelow, now) {
			reason = r.Reason
			if err := notice.Add(ctx, tx, ws, notice.Notice{
				Kind: notice.JudgeDrift, Subject: c.ID, Link: "judges/" + c.ID,
				Title: "The judge " + c.Name + " raises its alert",
				Text:  "In the traffic that it monitors, " + reason + ".",
			}); err != nil {
				return err
			}
		}
		_, err = db.Exec(ctx, in, `
			UPDATE monitors
				SET version = $3, since = $4, cursor = $5, seen = $6, passes = $7, judged = $8, failed = $9, cost = $10,
				alarmed_at = $11, reason = $12, spent = $13
			WHERE workspace_id = $1 AND criterion_id = $2`,
			c.ID, r.Version, r.Since, r.Cursor, r.Seen, r.Passes, r.Judged, r.Failed, r.Cost, r.AlarmedAt, r.Reason,
			r.Spent)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("save what was monitored: %w", err)
	}
	return reason, nil
}

func deleteMonitor(ctx context.Context, in db.Scoped, criterionID string) error {
	if _, err := db.Exec(ctx, in,
		`DELETE FROM monitors WHERE workspace_id = $1 AND criterion_id = $2`, criterionID); err != nil {
		return fmt.Errorf("delete the monitor of %s: %w", criterionID, err)
	}
	return nil
}

// discard deletes what a judge said of exchanges, in scans and while it monitored traffic.
func (s *Store) discard(ctx context.Context, ws tenant.ID, criterionID string) error {
	return judging.DeleteRows(ctx, s.db, ws, "judged_logs", "run_id, log_id",
		"run_id IN (SELECT $2 UNION SELECT t.id FROM inquiries t WHERE t.workspace_id = $1 AND t.criterion_id = $2)",
		criterionID)
}

// sweep deletes what judges said of exchanges whose time has passed.
func (s *Store) sweep(ctx context.Context) error {
	return judging.DeleteExpired(ctx, s.db, "judged_logs", "workspace_id, run_id, log_id")
}
