package eval

import (
	"context"

	"sovereign/internal/base/panics"
	"sovereign/internal/store/db"
)

// A keeping is an answer or a verdict that is to be stored before it is charged.
type keeping struct {
	insert func(ctx context.Context, in db.Scoped) error
	err    chan error // gets the result once it is stored
}

// keep stores something, also when ctx has ended: the model has been asked. It returns when that is committed.
func (w *worker) keep(insert func(context.Context, db.Scoped) error) error {
	k := &keeping{insert, make(chan error, 1)}
	w.keepings <- k
	return <-k.err
}

func (w *worker) keepAnswer(c *testCase, a *answer) error {
	return w.keep(func(ctx context.Context, in db.Scoped) error {
		kept := *a
		if c.expired() {
			kept.Answer = nil
		}
		return saveAnswer(ctx, in, w.eval.ID, &kept)
	})
}

func (w *worker) keepVerdict(c *testCase, v *verdict) error {
	return w.keep(func(ctx context.Context, in db.Scoped) error {
		kept := *v
		if c.expired() {
			kept.Critique = ""
		}
		return saveVerdict(ctx, in, w.eval.ID, &kept)
	})
}

// keepAll stores what slots keep, in one transaction what came during the last one: many slots would otherwise wait for
// a commit each.
func (w *worker) keepAll(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for first := range w.keepings {
		batch := gather(first, w.keepings)
		errs := make([]error, len(batch))
		err := panics.Call(nil, "storing answers of an eval", func() error {
			_, err := w.DB.Tx(ctx, func(tx *db.Tx) error { return storeAll(ctx, tx.In(w.run.Workspace), batch, errs) })
			return err
		})
		for i, k := range batch {
			if err != nil { // one of them may be the reason
				errs[i] = panics.Call(nil, "storing an answer of an eval", func() error {
					return k.insert(ctx, w.DB.In(w.run.Workspace))
				})
			}
			k.err <- errs[i]
		}
	}
}

// storeAll stores a batch. That something was stored before is the result of its own keeping.
func storeAll(ctx context.Context, in db.Scoped, batch []*keeping, errs []error) error {
	for i, k := range batch {
		if errs[i] = k.insert(ctx, in); ignoreStored(errs[i]) != nil {
			return errs[i]
		}
	}
	return nil
}

// gather returns first with what else is waiting, up to saveBatch.
func gather[T any](first T, waiting <-chan T) []T {
	batch := []T{first}
	for len(batch) < saveBatch {
		select {
		case one, open := <-waiting:
			if !open {
				return batch
			}
			batch = append(batch, one)
		default:
			return batch
		}
	}
	return batch
}
