package demo

import (
	"context"
	"fmt"
	"net/http"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A step of a fill. It may have been done in part by an earlier run, so each of its requests is one that may be
// repeated: a PUT, a POST with an Idempotency-Key, or an exchange, which is counted.
type step struct {
	name     string
	units    int
	optional bool // a refusal leaves it out
	do       func(*fill, context.Context) error
}

// steps are everything that a fill does, in order.
var steps []step

func init() { //nolint:gochecknoinits // the steps refer to what reads them
	steps = []step{
		{"sending simulated traffic", beforeSplit, false, func(f *fill, ctx context.Context) error {
			return f.ask(ctx, beforeSplit)
		}},
		{"making judges", 5, false, (*fill).judges},
		{"grading", 20, false, (*fill).grade},
		{"grading as a second person", 5, true, (*fill).gradeAgain},
		{"calibrating the judge", 40, false, (*fill).calibrate},
		{"freezing a dataset", 5, true, (*fill).freeze},
		{"comparing models", 60, true, (*fill).compare},
		{"splitting an alias", 5, true, (*fill).split},
		{"sending traffic to the canary", canaries, false, func(f *fill, ctx context.Context) error {
			return f.ask(ctx, exchanges)
		}},
		{"calibrating the anchor", 40, true, (*fill).calibrateAnchor},
		{"scoring for a trainer", 30, true, (*fill).score},
		{"making a review queue", 5, true, (*fill).queue},
	}
}

// units is the size of a whole fill.
func units() (n int) {
	for _, s := range steps {
		n += s.units
	}
	return n
}

// A fill is one run of the job.
type fill struct {
	*Store
	run   *job.Run
	user  tenant.UserID
	email string
	api   client
	state state
}

// fill fills a demo, or what is left of it.
func (s *Store) fill(ctx context.Context, run *job.Run) error {
	f := &fill{Store: s, run: run}
	if err := f.begin(ctx); err != nil {
		return err
	}
	for f.state.Step < len(steps) {
		at := steps[f.state.Step]
		err := at.do(f, ctx)
		if refused := fault.From(err); err != nil && at.optional && ctx.Err() == nil && isRefusal(err) {
			f.state.Skipped = append(f.state.Skipped, at.name+": "+refused.Message)
			err = nil
		}
		if err != nil {
			return err
		}
		f.state.Step++
		if err := f.save(ctx); err != nil {
			return err
		}
	}
	if err := f.revoke(ctx, f.state.Keys); err != nil {
		return err
	}
	return run.Finish(ctx, func(_ *db.Tx, t *job.Tally) error {
		t.Done, t.Total = int64(units()), int64(units())
		return nil
	})
}

// isRefusal reports whether an error is a rule that something broke, and not a failure that may pass.
func isRefusal(err error) bool {
	f := fault.From(err)
	return f != nil && f.Status < http.StatusInternalServerError
}

// begin reads what earlier runs have done, counts what they have paid for without having said so, and mints a key: that
// of an earlier run is gone with its process.
func (f *fill) begin(ctx context.Context) error {
	type row struct {
		State  string
		UserID tenant.UserID
		Email  string
	}
	found, err := db.Maybe[row](ctx, f.DB.In(f.run.Workspace), `
		SELECT demos.state, demos.user_id, u.email FROM demos JOIN users u ON u.id = demos.user_id
		WHERE demos.workspace_id = $1 AND demos.deletion = ''`)
	if err != nil {
		return fmt.Errorf("read demo: %w", err)
	}
	if found == nil {
		return fault.Missing.New("the demo was deleted")
	}
	f.user, f.email = found.UserID, found.Email
	if f.state, err = readState(found.State); err != nil {
		return fmt.Errorf("read demo: %w", err)
	}
	if err := f.countPaid(ctx); err != nil {
		return err
	}
	if err := f.revoke(ctx, f.state.Keys); err != nil {
		return err
	}
	key, text, err := f.Workspaces.CreateKey(ctx, f.run.Workspace, tenant.Operator, f.email, "demo traffic")
	if err != nil {
		return err
	}
	f.api = client{handler: f.Handler(), key: text}
	f.state.Keys = append(f.state.Keys, key.ID)
	return f.save(ctx)
}

// countPaid finds exchanges that an earlier run has paid for and died before it could count: they are not sent again.
func (f *fill) countPaid(ctx context.Context) error {
	if err := f.Drain(ctx); err != nil {
		return fmt.Errorf("post what was charged: %w", err)
	}
	paid := 0
	for _, key := range f.state.Keys {
		n, err := db.One[int](ctx, f.DB.In(f.run.Workspace), `
			SELECT COUNT(*) FROM usage_rows WHERE workspace_id = $1 AND key_id = $2 AND charged > 0`, key)
		if err != nil {
			return fmt.Errorf("count what was paid for: %w", err)
		}
		paid += n
	}
	if more := paid - f.state.Answered; more > 0 {
		f.state.Asked, f.state.Answered = f.state.Asked+more, paid
	}
	return nil
}

// revoke ends the keys of this run or of earlier ones.
func (f *fill) revoke(ctx context.Context, keys []tenant.KeyID) error {
	for _, key := range keys {
		if _, err := f.Workspaces.RevokeKey(ctx, f.run.Workspace, tenant.Operator, key, ""); err != nil {
			return err
		}
	}
	return nil
}

// save stores the state with the progress. It is called when something is done, so it is done even when the server
// stops.
func (f *fill) save(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	return f.run.Tx(ctx, func(tx *db.Tx, t *job.Tally) error {
		t.Done, t.Total = int64(f.done()), int64(units())
		_, err := db.Exec(ctx, tx.In(f.run.Workspace),
			`UPDATE demos SET state = $2 WHERE workspace_id = $1`, f.state.text())
		return err
	})
}

// done is how many units are done.
func (f *fill) done() (n int) {
	for _, s := range steps[:f.state.Step] {
		n += s.units
	}
	switch f.state.Step {
	case len(steps):
		return n
	default:
		return n + f.asked()
	}
}

// asked is how many exchanges of the step under way were sent.
func (f *fill) asked() int {
	switch first := steps[f.state.Step].units; {
	case f.state.Step == 0:
		return min(f.state.Asked, first)
	case first == canaries:
		return min(max(f.state.Asked-beforeSplit, 0), canaries)
	}
	return 0
}

// ask sends the exchanges of the script up to one, each when the one before it is counted. It finishes the one that is
// under way when the server stops.
func (f *fill) ask(ctx context.Context, until int) error {
	for f.state.Asked < until {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := script(f.state.Asked)
		in := call{
			method: http.MethodPost, path: "/v1/chat/completions", body: e.body,
			header: map[string]string{"X-Service-Tag": e.tag},
		}
		if e.trace != "" {
			in.header["X-Service-Trace-Id"] = e.trace
		}
		out, err := f.api.send(context.WithoutCancel(ctx), in)
		switch {
		case err != nil:
			return err
		case out.status == http.StatusOK:
			f.state.Answered++
		case e.body["model"] != flakyModel:
			return refusedExchange(out)
		}
		f.state.Asked++
		if err := f.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// refusedExchange is the error of an exchange that must not fail. One that may pass is tried again.
func refusedExchange(out *answer) error {
	if out.status >= http.StatusInternalServerError || out.status == http.StatusTooManyRequests {
		return fmt.Errorf("an exchange of the demo: %d %s", out.status, out.message())
	}
	return fault.Conflict("the demo could not be made: an exchange was answered with %d: %s", out.status, out.message())
}
