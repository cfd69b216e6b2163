package dataset

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"iter"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/text/fold"
	"sovereign/internal/text/sketch"
)

// exchanges are what a dataset is made of, newest first and the same each time they are read: a logbook.Scan.
type exchanges interface {
	Len() int
	Facts(ctx context.Context) iter.Seq2[*logbook.Exchange, error]
	Chains(ctx context.Context) iter.Seq2[*logbook.Exchange, error]
	Texts(ctx context.Context, which []int) iter.Seq2[*logbook.Exchange, error]
}

// curated is what is known of exchanges after curation. It holds none of their text.
type curated struct {
	Curation
	first, last clock.Time // of what was not dropped; 0 where that is nothing
	segment     string     // of all examples; empty where they have several
	held        []bool     // by example: in the holdout

	from     exchanges
	traces   []string // by exchange
	reasons  []dropReason
	places   []fold.Position
	segments []string
	examples []example
	prefixes []prefix // of the messages of examples, and all messages of every exchange
	// Exchanges whose examples are on one side: of one conversation, one question, one trace, or near-duplicates.
	together sets
}

// A writer receives the examples, each once and in order.
type writer func(key Key, line []byte) error

// curate makes examples of exchanges and hands them to write, then decides which are held out. An exchange that is
// dropped takes no part in folding: what it said stays in those that went on from it, as they sent it.
func curate(ctx context.Context, from exchanges, holdout float64, write writer) (*curated, error) {
	c := &curated{from: from, together: newSets(from.Len())}
	if err := c.classify(ctx); err != nil {
		return nil, err
	}
	if err := c.fold(ctx); err != nil {
		return nil, err
	}
	if err := c.write(ctx, holdout > 0, write); err != nil {
		return nil, err
	}
	c.count()
	if c.held = make([]bool, len(c.examples)); holdout == 0 {
		return c, nil
	}
	return c, c.holdOut(ctx, holdout)
}

// classify reads each exchange by itself.
func (c *curated) classify(ctx context.Context) error {
	n := c.from.Len()
	c.traces, c.segments, c.reasons = make([]string, 0, n), make([]string, 0, n), make([]dropReason, 0, n)
	interned := map[string]string{} // many rows have the same names
	intern := func(name string) string {
		if _, ok := interned[name]; !ok {
			interned[name] = name
		}
		return interned[name]
	}
	for x, err := range c.from.Facts(ctx) {
		if err != nil {
			return err
		}
		reason := classify(x.FinishReason, x.Response)
		c.traces, c.segments, c.reasons = append(c.traces, intern(x.TraceID)), append(c.segments, intern(x.Segment)), append(c.reasons, reason)
		if reason == notDropped {
			if c.last == 0 {
				c.last = x.At
			}
			c.first = x.At
		}
	}
	return nil
}

// leaves folds the exchanges that take part into conversations.
func (c *curated) leaves(ctx context.Context, part func(i int) bool) (places []fold.Position, err error) {
	places = fold.Leaves(func(yield func(fold.Chain) bool) {
		i := 0
		for x, failed := range c.from.Chains(ctx) {
			if failed != nil {
				err = failed
			}
			if err != nil {
				return
			}
			var chain fold.Chain
			if part(i) {
				chain, _ = fold.Parse(x.Chain) // of another release it folds with nothing
			}
			if i++; !yield(chain) {
				return
			}
		}
	})
	return places, err
}

func (c *curated) fold(ctx context.Context) (err error) {
	c.places, err = c.leaves(ctx, func(i int) bool { return c.reasons[i] == notDropped })
	if err != nil {
		return err
	}
	for i, p := range c.places {
		if p.DuplicateOf >= 0 {
			c.reasons[i] = duplicate
		}
	}
	return nil
}

// write makes the examples. Only now it shows that a line is there already, which is a duplicate, or that an exchange
// cannot be made a line, which is errored.
func (c *curated) write(ctx context.Context, sketched bool, write writer) error {
	var which []int
	for i, p := range c.places {
		if c.reasons[i] == notDropped && p.Leaf {
			which = append(which, i)
		}
	}
	known := make(map[Key]int, len(which))
	var line []byte
	at := 0
	for x, err := range c.from.Texts(ctx, which) {
		if err != nil {
			return err
		}
		i := which[at]
		at++
		if line, err = fold.Example(line[:0], x.Messages, x.Response, x.Tools, c.places[i].Folded > 0); err != nil {
			c.reasons[i] = errored
			continue
		}
		e := example{key: sha256.Sum256(line), row: i}
		if first, ok := known[e.key]; ok {
			c.reasons[i] = duplicate
			c.together.join(first, i)
			continue
		}
		known[e.key] = i
		if sketched {
			words, err := visibleText(line)
			if err != nil {
				return err
			}
			e.sketch = sketch.Of(words)
			c.addPrefixes(i, x.Messages)
		}
		c.examples = append(c.examples, e)
		if err := write(e.key, line); err != nil {
			return err
		}
	}
	return nil
}

// addPrefixes notes how an example begins. Messages that have no keys are compared as they were sent.
func (c *curated) addPrefixes(row int, messages []byte) {
	keys, err := fold.Questions(messages, maxPrefixes)
	if err != nil {
		sum := sha256.Sum256(messages)
		c.prefixes = append(c.prefixes, newPrefix(fold.Key(sum[:]), row, true))
	}
	for _, key := range keys {
		c.prefixes = append(c.prefixes, newPrefix(key, row, false))
	}
}

// count fills in the summary of the curation.
func (c *curated) count() {
	c.Scanned, c.Kept = len(c.reasons), len(c.examples)
	for i, reason := range c.reasons {
		switch reason {
		case errored:
			c.Dropped.Errored++
		case truncated:
			c.Dropped.Truncated++
		case empty:
			c.Dropped.Empty++
		case duplicate:
			c.Dropped.Duplicate++
		case notDropped:
			if !c.places[i].Leaf {
				c.FoldedTurns++
			} else if c.places[i].Folded > 0 {
				c.FoldedConversations++
			}
		}
	}
	for i, e := range c.examples {
		if segment := c.segments[e.row]; i == 0 {
			c.segment = segment
		} else if c.segment != segment {
			c.segment = ""
		}
	}
}

// holdOut splits the examples. Exchanges that are in no example still connect others: two branches that continue a
// dropped turn are one conversation.
func (c *curated) holdOut(ctx context.Context, percent float64) error {
	if err := c.joinConversations(ctx); err != nil {
		return err
	}
	if err := c.addQuestions(ctx); err != nil {
		return err
	}
	slices.SortFunc(c.prefixes, func(a, b prefix) int { return cmp.Compare(a.hash, b.hash) })
	joinAsked(c.prefixes, c.together)
	sorted := make([]*example, len(c.examples))
	for i := range c.examples {
		sorted[i] = &c.examples[i]
	}
	slices.SortFunc(sorted, func(a, b *example) int { return bytes.Compare(a.key[:], b.key[:]) })
	if err := near(ctx, sorted, c.together, maxCompared); err != nil {
		return err
	}
	joinContinued(c.prefixes, c.together) // after near, so that few sets are left to count
	c.held = split(c.examples, c.together, percent)
	return nil
}

// joinConversations joins the turns of one conversation, and the exchanges of one trace.
func (c *curated) joinConversations(ctx context.Context) error {
	places, err := c.leaves(ctx, func(int) bool { return true })
	if err != nil {
		return err
	}
	traces := map[string]int{}
	for i, p := range places {
		c.together.join(i, p.Root)
		if p.DuplicateOf >= 0 {
			c.together.join(i, p.DuplicateOf)
		}
		if trace := c.traces[i]; trace != "" {
			if first, ok := traces[trace]; ok {
				c.together.join(i, first)
			} else {
				traces[trace] = i
			}
		}
	}
	return nil
}

// addQuestions notes what every exchange was asked.
func (c *curated) addQuestions(ctx context.Context) error {
	i := 0
	for x, err := range c.from.Chains(ctx) {
		if err != nil {
			return err
		}
		if chain, _ := fold.Parse(x.Chain); chain.Own != (fold.Key{}) { // one of another release is like no other
			c.prefixes = append(c.prefixes, newPrefix(chain.Prompt, i, true))
		}
		i++
	}
	return nil
}
