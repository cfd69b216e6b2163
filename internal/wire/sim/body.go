package sim

import (
	"context"
	"errors"
	"io"
	"math"
	"time"
)

// frame is a piece of a body: bytes after a delay, or the error that ends the body.
type frame struct {
	wait time.Duration
	data []byte
	err  error
}

// frames returns the next frame of a body, or false at its end.
type frames func() (frame, bool)

// framesOf returns the given frames in order.
func framesOf(all ...frame) frames {
	return func() (next frame, ok bool) {
		if len(all) == 0 {
			return frame{}, false
		}
		next, all = all[0], all[1:]
		return next, true
	}
}

// forever exceeds the duration of every request.
const forever = time.Duration(math.MaxInt64)

var errClosed = errors.New("simulated body is closed")

// body produces its frames in Read, without a goroutine.
type body struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	frames frames
	rest   []byte
	err    error
}

func newBody(ctx context.Context, f frames) *body {
	b := &body{frames: f}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

// Read waits for the next frame. It fails when the request's context ends or the body is closed.
func (b *body) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	if len(p) == 0 {
		return 0, nil
	}
	for len(b.rest) == 0 && b.err == nil {
		next, ok := b.frames()
		if !ok {
			b.err = io.EOF
			break
		}
		if err := sleep(b.ctx, next.wait); err != nil {
			return 0, err
		}
		b.rest, b.err = next.data, next.err
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close also ends a Read that is waiting.
func (b *body) Close() error {
	b.cancel(errClosed)
	return nil
}

// sleep waits for d or until ctx ends, and returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
