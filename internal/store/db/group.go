package db

import (
	"context"
	"sync"

	"sovereign/internal/base/panics"
)

// A Group lets many goroutines write in few transactions: what comes while one transaction runs is written by the next.
// SQLite has a single writer, and a commit takes as long as the disk does.
type Group[T any] struct {
	db    *DB
	write func(context.Context, *Tx, []T) error

	mu      sync.Mutex
	waiting []*grouped[T]
	busy    bool
}

type grouped[T any] struct {
	value T
	done  chan error
}

// maxGroup bounds the values of one transaction.
const maxGroup = 256

// NewGroup returns a group whose values write writes. Like every function of a transaction, it may be called more than
// once for the same values.
func NewGroup[T any](d *DB, write func(context.Context, *Tx, []T) error) *Group[T] {
	return &Group[T]{db: d, write: write}
}

// Do writes a value, and returns when it is committed. It cannot be cancelled. If a transaction of several values
// fails, each is written alone, so that none fails because of another.
func (g *Group[T]) Do(value T) error {
	one := &grouped[T]{value, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, one)
	start := !g.busy
	g.busy = true
	g.mu.Unlock()
	if start {
		go g.drain()
	}
	return <-one.done
}

// drain writes until nothing waits.
func (g *Group[T]) drain() {
	for {
		g.mu.Lock()
		batch := g.waiting[:min(len(g.waiting), maxGroup)]
		g.waiting = g.waiting[len(batch):]
		if len(batch) == 0 {
			g.waiting, g.busy = nil, false
		}
		g.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		err := g.commit(batch)
		for _, one := range batch {
			if err != nil && len(batch) > 1 {
				one.done <- g.commit([]*grouped[T]{one})
			} else {
				one.done <- err
			}
		}
	}
}

func (g *Group[T]) commit(batch []*grouped[T]) error {
	ctx, values := context.Background(), make([]T, len(batch))
	for i, one := range batch {
		values[i] = one.value
	}
	return panics.Call(nil, "writing a group", func() error {
		_, err := g.db.Tx(ctx, func(tx *Tx) error { return g.write(ctx, tx, values) })
		return err
	})
}
