package eval

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/text/fold"
	"sovereign/internal/text/redact"
)

// A testCase is a case as it is stored.
type testCase struct {
	Position      int
	ID            string
	RequestID     string
	Segment       string
	Messages      []byte
	Tools         []byte // empty without any
	Logged        []byte // the answer that was logged or that the dataset has; empty without one
	LoggedModel   string // that gave it, if its answer can be reused
	LoggedCost    money.Nano
	LoggedLatency int64      // in microseconds
	ExpiresAt     clock.Time // 0 for never
}

// size returns how many bytes of text c has.
func (c *testCase) size() int { return len(c.Messages) + len(c.Tools) + len(c.Logged) }

// expired reports whether the texts of c are to be deleted, or were: no other text about it is stored from then on,
// since the sweep deletes the texts of a case once.
func (c *testCase) expired() bool { return c.ExpiresAt != 0 && c.ExpiresAt <= clock.Now() }

// A source has what may become cases. It may be read several times, and returns the same each time.
type source interface {
	// chains returns the segment and the chain of each, in order.
	chains(ctx context.Context) iter.Seq2[sourced, error]
	// read returns some, by their indices, which ascend.
	read(ctx context.Context, which []int) iter.Seq2[*testCase, error]
}

// A sourced is what a sample needs of something that may become a case.
type sourced struct {
	segment string
	chain   fold.Chain
}

// marks returns the marks of a source. It reads the source twice, so that it need not hold the chains.
func marks(ctx context.Context, s source) ([]mark, error) {
	own := map[fold.Key]bool{}
	for one, err := range s.chains(ctx) {
		if err != nil {
			return nil, err
		}
		own[one.chain.Own] = true
	}
	delete(own, fold.Key{})
	var all []mark
	for one, err := range s.chains(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, newMark(one.segment, one.chain, own))
	}
	return all, nil
}

// logSource is a source of logged exchanges.
type logSource struct{ scan *logbook.Scan }

func (s logSource) chains(ctx context.Context) iter.Seq2[sourced, error] {
	return func(yield func(sourced, error) bool) {
		for row, err := range s.scan.Segments(ctx) {
			if err != nil {
				yield(sourced{}, err)
				return
			}
			chain, _ := fold.Parse(row.Chain) // an unreadable one is left out
			if !yield(sourced{row.Segment, chain}, nil) {
				return
			}
		}
	}
}

func (s logSource) read(ctx context.Context, which []int) iter.Seq2[*testCase, error] {
	return func(yield func(*testCase, error) bool) {
		for row, err := range s.scan.Whole(ctx, which) {
			if err != nil {
				yield(nil, err)
				return
			}
			c := &testCase{
				RequestID: row.RequestID, Segment: row.Segment, Messages: row.Messages, Tools: row.Tools,
				Logged: row.Response, LoggedCost: row.Cost, LoggedLatency: row.Latency, ExpiresAt: row.ExpiresAt,
			}
			if !row.Cached { // a cached answer took no time and cost nothing
				c.LoggedModel = row.Model
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// datasetSource is a source of a dataset's examples. The last message of an example is its answer.
type datasetSource struct {
	store *dataset.Store
	ws    tenant.ID
	set   *dataset.Dataset
}

// lines reads the examples as cases. What cannot be read is an empty case.
func (s datasetSource) lines(ctx context.Context) iter.Seq2[*testCase, error] {
	return func(yield func(*testCase, error) bool) {
		read := 0
		for line, err := range s.store.Lines(ctx, s.ws, s.set) {
			if err != nil {
				yield(nil, err)
				return
			}
			c, err := newExample(line.Line)
			if err != nil {
				c = &testCase{}
			}
			if read++; !yield(c, nil) || read == logbook.MaxPool {
				return
			}
		}
	}
}

func (s datasetSource) chains(ctx context.Context) iter.Seq2[sourced, error] {
	return func(yield func(sourced, error) bool) {
		for c, err := range s.lines(ctx) {
			var chain fold.Chain
			if err == nil {
				chain, _ = fold.Keys(c.Messages, c.Logged)
			}
			if !yield(sourced{chain: chain}, err) || err != nil {
				return
			}
		}
	}
}

func (s datasetSource) read(ctx context.Context, which []int) iter.Seq2[*testCase, error] {
	return func(yield func(*testCase, error) bool) {
		at := 0
		for c, err := range s.lines(ctx) {
			if len(which) == 0 && err == nil {
				return
			}
			if err == nil && which[0] != at {
				at++
				continue
			}
			if !yield(c, err) || err != nil {
				return
			}
			which, at = which[1:], at+1
		}
	}
}

// lenient reads logged JSON as it is.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// newExample reads an example of a dataset. Weights, which are for training, are left out: providers refuse them.
func newExample(line []byte) (*testCase, error) {
	var example struct {
		Messages []map[string]jsontext.Value `json:"messages"`
		Tools    jsontext.Value              `json:"tools"`
	}
	if err := json.Unmarshal(line, &example, lenient); err != nil {
		return nil, fmt.Errorf("read an example: %w", err)
	}
	last := len(example.Messages) - 1
	if last < 1 {
		return nil, fold.ErrMessages
	}
	for _, message := range example.Messages {
		delete(message, "weight")
	}
	messages, err := json.Marshal(example.Messages[:last], lenient, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write messages: %w", err)
	}
	answer, err := json.Marshal(example.Messages[last], lenient, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write an answer: %w", err)
	}
	return &testCase{Messages: messages, Logged: answer, Tools: listOf(example.Tools)}, nil
}

// listOf returns tools, or nothing where they are null.
func listOf(tools jsontext.Value) []byte {
	if len(tools) == 0 || tools.Kind() == 'n' {
		return nil
	}
	return tools
}

// inlineSource is the cases of a request.
type inlineSource []testCase

// newInlineSource checks the cases of a request, and leaves credentials out.
func newInlineSource(all []NewCase) (inlineSource, error) {
	cases, taken := make(inlineSource, len(all)), map[string]bool{}
	for i, c := range all {
		at := fmt.Sprintf("cases[%d].", i)
		if len(c.Tools) > 0 && c.Tools.Kind() != '[' && c.Tools.Kind() != 'n' {
			return nil, fault.Invalid(at+"tools", "must be a list of tools")
		}
		var clean redact.Exchange
		messages, tools := clean.Messages(c.Messages), clean.JSON(listOf(c.Tools))
		one := testCase{ID: c.ID, Messages: clean.RedactFound(messages), Tools: clean.RedactFound(tools)}
		var listed []jsontext.Value
		if _, err := fold.Keys(one.Messages, noAnswer); err != nil {
			return nil, fault.Invalid(at+"messages", "must be a list of messages that each have a role")
		}
		if err := json.Unmarshal(one.Messages, &listed, lenient); err != nil || len(listed) == 0 {
			return nil, fault.Invalid(at+"messages", "must not be empty")
		}
		if one.ID == "" {
			one.ID = strconv.Itoa(i + 1)
		}
		if taken[one.ID] {
			return nil, fault.Invalid(at+"id", "is the id of another case; those without one have their number")
		}
		taken[one.ID] = true
		cases[i] = one
	}
	return cases, nil
}

// noAnswer stands for the answer of a case that has none.
var noAnswer = []byte(`{"role":"assistant"}`)

func (s inlineSource) chains(context.Context) iter.Seq2[sourced, error] {
	return func(yield func(sourced, error) bool) {
		for i := range s {
			chain, _ := fold.Keys(s[i].Messages, noAnswer)
			if !yield(sourced{chain: chain}, nil) {
				return
			}
		}
	}
}

func (s inlineSource) read(_ context.Context, which []int) iter.Seq2[*testCase, error] {
	return func(yield func(*testCase, error) bool) {
		for _, i := range which {
			if !yield(&s[i], nil) {
				return
			}
		}
	}
}

// A sample is the cases of an eval, chosen and not read yet.
type sample struct {
	source  source
	which   []int // the indices of the cases, ascending
	ranks   []int // the position of each in the eval
	leftOut int
}

// draw chooses the cases of an eval. All cases of a request are used, in their order.
func draw(ctx context.Context, n *NewEval, from source, with seed) (*sample, error) {
	pool, err := marks(ctx, from)
	if err != nil {
		return nil, err
	}
	var drawn []int
	s := &sample{source: from}
	if n.source() == inline {
		order := make([]int, len(pool))
		for i := range order {
			order[i] = i
		}
		drawn = distinct(pool, order)
		s.leftOut = len(pool) - len(drawn)
	} else {
		drawn, s.leftOut = choose(pool, cmp.Or(n.SampleCount, maxSample), with)
	}
	if len(drawn) == 0 {
		return nil, fault.Precondition.New("there are no cases: %s", map[string]string{
			fromLogs:    "no logged exchange matches the filters",
			fromDataset: "the dataset has no example that can be read",
			inline:      "none can be read",
		}[n.source()])
	}
	rank := make(map[int]int, len(drawn))
	for position, i := range drawn {
		rank[i] = position
	}
	s.which = slices.Sorted(slices.Values(drawn))
	for _, i := range s.which {
		s.ranks = append(s.ranks, rank[i])
	}
	return s, nil
}

// read returns the cases with their positions, at most so many: those that were drawn first.
func (s *sample) read(ctx context.Context, most int) iter.Seq2[*testCase, error] {
	var which, ranks []int
	for i, rank := range s.ranks {
		if rank < most {
			which, ranks = append(which, s.which[i]), append(ranks, rank)
		}
	}
	return func(yield func(*testCase, error) bool) {
		at := 0
		for c, err := range s.source.read(ctx, which) {
			if err != nil {
				yield(nil, err)
				return
			}
			if c.Position = ranks[at]; c.ID == "" {
				c.ID = strconv.Itoa(c.Position + 1)
			}
			if at++; !yield(c, nil) {
				return
			}
		}
	}
}
