package reward

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"sovereign/internal/base/panics"
)

// A call that joins after all others have left is scored: it must not share the end of theirs.
func TestACallDoesNotJoinABatchThatWasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, name := &batches{}, batchName{session: "rs_1", step: "1"}
		left, leave := context.WithCancel(t.Context())
		leave()
		released := 0
		release := func() { released++ }
		if _, err := b.score(left, &Store{}, name, make([]item, 1), release); !errors.Is(err, context.Canceled) {
			t.Fatalf("a caller that left has %v", err)
		}
		joined, at := b.join(t.Context(), &Store{}, name, make([]item, 1), release)
		if joined.ctx.Err() != nil || at != 0 || len(joined.items) != 1 {
			t.Errorf("joined at %d of %d: %v", at, len(joined.items), joined.ctx.Err())
		}
	})
}

// A panic while a batch is scored is an error of its members, and frees what they hold.
func TestAPanicEndsOnlyItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, released := &batches{}, 0
		_, err := b.score(t.Context(), &Store{}, batchName{session: "rs_1", step: "1"}, make([]item, 1), func() { released++ })
		if !errors.As(err, new(*panics.Error)) || released != 1 {
			t.Errorf("%v, released %d times", err, released)
		}
	})
}
