package label

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// OpenSplit reads a workspace's split, as far as it concerns some relations. It makes the split if there is none.
func OpenSplit(ctx context.Context, tx *db.Tx, ws tenant.ID, about ...Relations) (*Split, error) {
	in := tx.In(ws)
	s := &Split{graded: map[string]turn{}, earlier: map[string]turn{}, changed: map[turnKey]bool{}}
	secret, err := db.Maybe[[]byte](ctx, in, `SELECT secret FROM label_secrets WHERE workspace_id = $1`)
	if err != nil {
		return nil, fmt.Errorf("open the split: %w", err)
	}
	if secret != nil {
		s.secret = *secret
		return s, s.read(ctx, in, about)
	}
	s.secret = make([]byte, sha256.Size)
	_, _ = rand.Read(s.secret) // never fails
	if _, err := db.Exec(ctx, in,
		`INSERT INTO label_secrets (workspace_id, secret) VALUES ($1, $2)`, s.secret); err != nil {
		return nil, fmt.Errorf("make the split: %w", err)
	}
	return s, nil
}

var findTurns = `SELECT turn, earlier, half, shared FROM label_halves WHERE workspace_id = $1 AND turn IN ` + among

// batchSize is how many values one statement asks about. Its text is always the same, so that it is prepared once.
const batchSize = 64

// among is the list of parameters of a statement that asks about batchSize values, after $1.
var among = func() string {
	places := make([]string, batchSize)
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+2)
	}
	return `(` + strings.Join(places, ", ") + `)`
}()

// batches yields the arguments of statements that ask about values. The last value of a short batch is repeated.
func batches[T cmp.Ordered](values []T, arg func(T) any) iter.Seq[[]any] {
	values = slices.Clone(values)
	slices.Sort(values)
	return func(yield func([]any) bool) {
		for some := range slices.Chunk(slices.Compact(values), batchSize) {
			args := make([]any, batchSize)
			for i := range args {
				args[i] = arg(some[min(i, len(some)-1)])
			}
			if !yield(args) {
				return
			}
		}
	}
}

func (s *Split) read(ctx context.Context, in db.Scoped, about []Relations) error {
	var keys []string
	for _, k := range about {
		keys = append(append(keys, k.keys...), k.earlier...)
	}
	type row struct {
		Turn    []byte
		Earlier bool
		Half    Half
		Shared  int64
	}
	for args := range batches(keys, func(key string) any { return []byte(key) }) {
		rows, err := db.Query[row](ctx, in, findTurns, args...)
		if err != nil {
			return fmt.Errorf("read halves: %w", err)
		}
		for _, r := range rows {
			if r.Earlier {
				s.earlier[string(r.Turn)] = turn{r.Half, r.Shared}
			} else {
				s.graded[string(r.Turn)] = turn{r.Half, r.Shared}
			}
		}
	}
	return nil
}

// Save stores what was assigned.
func (s *Split) Save(ctx context.Context, tx *db.Tx, ws tenant.ID) error {
	rows := make([][]any, 0, len(s.changed))
	for c := range s.changed {
		t := s.graded[c.key]
		if c.earlier {
			t = s.earlier[c.key]
		}
		rows = append(rows, []any{ws, []byte(c.key), c.earlier, int64(t.half), t.shared})
	}
	err := db.Upsert(ctx, tx.Across("the rows name their workspace"), "label_halves",
		[]string{"workspace_id", "turn", "earlier", "half", "shared"}, 3, rows)
	if err != nil {
		return fmt.Errorf("store halves: %w", err)
	}
	return nil
}
