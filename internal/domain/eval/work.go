package eval

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/panics"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A worker runs an eval. Several slots do a case each, from its first answer to its last verdict. A case is written
// when it is done; its answers are stored before that, so that a run which resumes asks for nothing that is stored.
type worker struct {
	*Store
	run       *job.Run
	eval      *record
	maxTokens int64
	told      *judge.Instructions // of the criterion; nil in a comparison
	budget    *judging.Budget
	models    []*contestant // the baseline first
	keepings  chan *keeping // what is to be stored before it is charged
	silent    atomic.Int64  // consecutive questions that the judge did not answer
	free      atomic.Int64  // bytes that endpoints have answered
	failed    atomic.Pointer[error]
}

// A contestant is a model whose answers are compared.
type contestant struct {
	name    string
	failure atomic.Pointer[string] // why it failed as a whole
	silent  atomic.Int64           // consecutive requests that it did not answer
}

// work is the job of an eval. It does the cases that are pending, and stores the figures when there are no more.
func (s *Store) work(ctx context.Context, run *job.Run) error {
	w, err := s.newWorker(ctx, run)
	if err != nil {
		return err
	}
	if err := w.doCases(ctx); err != nil {
		return err
	}
	return run.Finish(ctx, func(tx *db.Tx, tally *job.Tally) error {
		tally.Cost = max(tally.Cost, w.budget.Spent())
		return w.eval.finish(ctx, tx.In(run.Workspace))
	})
}

// newWorker reads what an earlier run has left.
func (s *Store) newWorker(ctx context.Context, run *job.Run) (*worker, error) {
	in := s.DB.In(run.Workspace)
	r, err := find(ctx, in, run.ID)
	if err != nil {
		return nil, err
	}
	w := &worker{Store: s, run: run, eval: r, keepings: make(chan *keeping)}
	if w.maxTokens, err = r.asked.maxTokens(); err != nil {
		return nil, err
	}
	for _, model := range r.asked.models() {
		w.models = append(w.models, &contestant{name: model})
	}
	lost, err := failures(ctx, in, r.ID)
	if err != nil {
		return nil, err
	}
	for model, reason := range lost {
		w.models[model].failure.Store(&reason)
	}
	free, err := answeredFree(ctx, in, r)
	if err != nil {
		return nil, err
	}
	w.free.Store(free)
	if w.told, err = w.instructions(ctx); err != nil {
		return nil, err
	}
	paid, err := s.paid(ctx, run.Workspace, r)
	if err != nil {
		return nil, err
	}
	return w, run.Tx(ctx, func(_ *db.Tx, tally *job.Tally) error {
		tally.Cost = max(tally.Cost, paid)
		w.budget = judging.NewBudget(r.asked.MaxCostUSD, tally.Cost)
		return nil
	})
}

// instructions reads what the criterion's judge is told; nil in a comparison. It refuses another version than the eval
// began with.
func (w *worker) instructions(ctx context.Context) (*judge.Instructions, error) {
	if w.eval.CriterionID == "" {
		return nil, nil //nolint:nilnil // a comparison has none
	}
	in := w.DB.In(w.run.Workspace)
	c, err := criterion.Find(ctx, in, w.eval.CriterionID)
	if err != nil {
		return nil, err
	}
	if was := w.eval.Version; c.Version != was {
		return nil, fault.Conflict("the criterion has changed meanwhile: version %d is now %d", was, c.Version)
	}
	return c.Instructions(ctx, in)
}

// fail ends the run after the requests that are under way. The first error counts.
func (w *worker) fail(err error) { w.failed.CompareAndSwap(nil, &err) }

// err returns what ended the run, or nil.
func (w *worker) err() error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// feedPage is how many positions of cases are read at a time. Their texts are read by the slots.
const feedPage = 256

// doCases does the pending cases, as many at a time as judges are asked questions. Slots wait for nothing but a case.
func (w *worker) doCases(ctx context.Context) error {
	slots := w.Judges.Concurrency()
	next, done := make(chan int64), make(chan *doneCase, slots)
	var working, saving sync.WaitGroup
	saving.Go(func() { w.saveAll(ctx, done) })
	saving.Go(func() { w.keepAll(ctx) })
	for range slots {
		working.Go(func() {
			for position := range next {
				w.contain("a case of an eval", func() error { return w.doCase(ctx, position, done) })
			}
		})
	}
	w.contain("the cases of an eval", func() error { return w.feed(ctx, next) })
	close(next)
	working.Wait()
	close(done)
	close(w.keepings)
	saving.Wait()
	return w.err()
}

// contain calls do unless the run has failed. An error, or a panic, fails it.
func (w *worker) contain(what string, do func() error) {
	if w.err() != nil {
		return
	}
	if err := panics.Call(nil, what, do, "workspace", w.run.Workspace, "eval", w.eval.ID); err != nil {
		w.fail(err)
	}
}

// feed sends the positions of the pending cases to the slots.
func (w *worker) feed(ctx context.Context, next chan<- int64) error {
	for after := int64(-1); ; {
		page, err := w.pending(ctx, w.run.Workspace, w.eval.ID, after, feedPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, position := range page {
			if w.failed.Load() != nil {
				return nil
			}
			select {
			case next <- position:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		after = page[len(page)-1]
	}
}

// doCase does one case.
func (w *worker) doCase(ctx context.Context, position int64, done chan<- *doneCase) error {
	c, err := w.load(ctx, position)
	if err != nil {
		return err
	}
	result, err := w.settle(ctx, c)
	if err != nil {
		return err
	}
	done <- result
	return nil
}

// saveBatch is how many cases are written together, at most: others wait for their transaction.
const saveBatch = 64

// saveAll writes cases as they are done, whatever ends the run: those together that were done during the last write.
func (w *worker) saveAll(ctx context.Context, done <-chan *doneCase) {
	for first := range done {
		batch := gather(first, done)
		err := panics.Call(nil, "saving cases of an eval", func() error { return w.save(ctx, batch) })
		if err != nil {
			w.fail(err)
		}
	}
}

// save writes cases that are done. The criterion must be the same as before.
func (w *worker) save(ctx context.Context, batch []*doneCase) error {
	saving := context.WithoutCancel(ctx)
	err := w.run.Save(saving, func(tx *db.Tx, tally *job.Tally) error {
		tally.Cost = max(tally.Cost, w.budget.Spent())
		return saveDone(saving, tx, w.run.Workspace, w.eval.ID, batch, tally)
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	_, err = w.instructions(ctx)
	return err
}

// lose fails a model as a whole. Without the baseline, and without any candidate, the run fails.
func (w *worker) lose(ctx context.Context, model int, reason string) error {
	m := w.models[model]
	if model == 0 {
		return fault.Precondition.New("the baseline %s failed: %s", m.name, reason)
	}
	if !m.failure.CompareAndSwap(nil, &reason) {
		return nil // another slot has found out before
	}
	if err := w.run.Tx(ctx, func(tx *db.Tx, _ *job.Tally) error {
		if _, err := db.Exec(ctx, tx.In(w.run.Workspace), `
			UPDATE eval_pairs SET failure = $4 WHERE workspace_id = $1 AND eval_id = $2 AND model = $3`,
			w.eval.ID, model, judging.Storable(reason)); err != nil {
			return fmt.Errorf("store the failure of %s: %w", m.name, err)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, other := range w.models[1:] {
		if other.failure.Load() == nil {
			return nil
		}
	}
	return fault.Precondition.New("every candidate has failed; %s: %s", m.name, reason)
}
