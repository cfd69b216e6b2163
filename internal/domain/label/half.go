package label

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/text/fold"
)

// A Half is where a conversation stands.
type Half int64

// The halves. What ties conversations of either together belongs to both: nobody is shown it, and nothing is measured by it.
const (
	Tuning Half = iota // judges learn from it
	Report             // they are measured by it
	Both
)

func (h Half) join(i Half) Half {
	if h == i {
		return h
	}
	return Both
}

// Kin is what tells which conversations something belongs to. Turns of one conversation, steps of one run, and answers to the same question
// are related: whoever was shown one of them has seen something of the others.
type Kin struct {
	names   []string // that it is known by
	earlier []string // of turns that came before it
	lot     string   // that its half is drawn by, if it is related to nothing
	unread  bool     // nobody can say what it is related to
}

// KinOf is the kin of an exchange, or of the steps of a run, which its trace names.
func KinOf(steps []judge.Step, trace string) Kin {
	var k Kin
	for _, step := range steps {
		chain, err := fold.Keys(step.Messages, step.Response)
		if err != nil {
			k.unread = true
			continue
		}
		k.names = append(k.names, string(chain.Own[:]), string(chain.Prompt[:]))
		for _, key := range chain.Earlier {
			k.earlier = append(k.earlier, string(key[:]))
		}
		if k.lot == "" {
			k.lot = string(chain.Prompt[:])
		}
	}
	subject := judge.Subject{Steps: steps}
	if id, err := subject.Identity(); err == nil {
		k.names = append(k.names, string(id[:]))
		if k.lot == "" {
			k.lot = string(id[:])
		}
	}
	if trace != "" {
		sum := sha256.Sum256([]byte("trace\n" + trace))
		k.lot = string(sum[:])
		k.names = append(k.names, k.lot)
	}
	slices.Sort(k.names)
	slices.Sort(k.earlier)
	k.names, k.earlier = slices.Compact(k.names), slices.Compact(k.earlier)
	return k
}

// template is how many things may begin alike before that is no relation: examples that stand in every prompt are no conversation.
const template = 8

// A turn is what is known of one that was graded, or that came before one.
type turn struct {
	half   Half
	shared int64 // how many came after it
}

// A Split knows in which half everything stands that was graded, or shown to who learns from it. It holds what it was asked about.
type Split struct {
	secret  []byte
	graded  map[string]turn
	earlier map[string]turn
	changed map[change]bool
}

type change struct {
	key     string
	earlier bool
}

// OpenSplit is a workspace's split, made where there is none yet, as far as it is about some.
func OpenSplit(ctx context.Context, tx *db.Tx, ws tenant.ID, about ...Kin) (*Split, error) {
	in := tx.In(ws)
	s := &Split{graded: map[string]turn{}, earlier: map[string]turn{}, changed: map[change]bool{}}
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
	if _, err := db.Exec(ctx, in, `INSERT INTO label_secrets (workspace_id, secret) VALUES ($1, $2)`, s.secret); err != nil {
		return nil, fmt.Errorf("make the split: %w", err)
	}
	return s, nil
}

var findTurns = `SELECT turn, earlier, half, shared FROM label_halves WHERE workspace_id = $1 AND turn IN ` + among

// askedAtOnce is how many values one statement asks about; its text is always the same.
const askedAtOnce = 64

var among = func() string {
	places := make([]string, askedAtOnce)
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+2)
	}
	return `(` + strings.Join(places, ", ") + `)`
}()

// batches are the arguments of statements that ask about values, the last of a batch repeated as often as it takes.
func batches[T cmp.Ordered](values []T, arg func(T) any) iter.Seq[[]any] {
	values = slices.Clone(values)
	slices.Sort(values)
	return func(yield func([]any) bool) {
		for some := range slices.Chunk(slices.Compact(values), askedAtOnce) {
			args := make([]any, askedAtOnce)
			for i := range args {
				args[i] = arg(some[min(i, len(some)-1)])
			}
			if !yield(args) {
				return
			}
		}
	}
}

func (s *Split) read(ctx context.Context, in db.Scoped, about []Kin) error {
	var keys []string
	for _, k := range about {
		keys = append(append(keys, k.names...), k.earlier...)
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

// Half is where something stands: with what it is related to or, without any of that, by lot.
func (s *Split) Half(k Kin) Half {
	if k.unread {
		return Both
	}
	related, half := false, Tuning
	meet := func(t turn, known bool) {
		switch {
		case !known:
		case related:
			half = half.join(t.half)
		default:
			related, half = true, t.half
		}
	}
	for _, key := range k.names {
		t, known := s.graded[key] // the same was graded
		meet(t, known)
		t, known = s.earlier[key] // it came before what was
		meet(t, known && t.shared < template)
	}
	for _, key := range k.earlier {
		t, known := s.graded[key] // what came before it was
		meet(t, known)
		t, known = s.earlier[key] // both went on from it
		meet(t, known && t.shared < template)
	}
	if related {
		return half
	}
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(k.lot))
	return Half(mac.Sum(nil)[0] & 1)
}

// Put says where something stands from now on.
func (s *Split) Put(k Kin, half Half) {
	put := func(all map[string]turn, key string, earlier bool) {
		t, known := all[key]
		if !known {
			t.half = half
		}
		t.half = t.half.join(half)
		t.shared++
		all[key] = t
		s.changed[change{key, earlier}] = true
	}
	for _, key := range k.names {
		put(s.graded, key, false)
	}
	for _, key := range k.earlier {
		put(s.earlier, key, true)
	}
}

// Keep writes down what was put.
func (s *Split) Keep(ctx context.Context, tx *db.Tx, ws tenant.ID) error {
	rows := make([][]any, 0, len(s.changed))
	for c := range s.changed {
		t := s.graded[c.key]
		if c.earlier {
			t = s.earlier[c.key]
		}
		rows = append(rows, []any{ws, []byte(c.key), c.earlier, int64(t.half), t.shared})
	}
	err := db.Upsert(ctx, tx.Across("the rows name their workspace"), "label_halves", []string{"workspace_id", "turn", "earlier", "half", "shared"}, 3, rows)
	if err != nil {
		return fmt.Errorf("keep halves: %w", err)
	}
	return nil
}
