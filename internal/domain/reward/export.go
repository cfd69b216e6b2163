package reward

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// The limits of an export.
const (
	MaxExport   = 10_000  // scored items that are read
	maxPairs    = 100_000 // lines of pairs
	pairGap     = 0.2     // by which the rewards of a pair differ at least
	minGrade    = 0.9     // of a winner, by default
	exportBatch = 50      // items whose texts are read together
	rounding    = 1e-9    // 0.3 - 0.1 is less than 0.2
)

// The formats of an export.
const (
	formatRL       = "rl"
	formatSFT      = "sft"
	formatPairwise = "pairwise"
)

// An ExportRequest says what is exported of a session.
type ExportRequest struct {
	Format   string   `query:"format" enum:"rl,sft,pairwise" default:"rl" doc:"rl: every scored item. sft: those that pass, with a reward of at least min_grade. pairwise: pairs of the same prompt and step whose rewards differ by at least 0.2"`
	Step     string   `query:"step" doc:"Only items that were scored under this step"`
	MinGrade *float64 `query:"min_grade" minimum:"0" maximum:"1" doc:"Of the format sft: the lowest reward of a winner, 0.9 by default"`
	Limit    int      `query:"limit" minimum:"1" maximum:"10000" default:"10000" doc:"Scored items to read"`
}

// check refuses a parameter that is of another format, and fills in what was left out.
func (q *ExportRequest) check() error {
	if q.Format == "" {
		q.Format = formatRL
	}
	if q.Limit == 0 {
		q.Limit = MaxExport
	}
	if q.MinGrade != nil && q.Format != formatSFT {
		return fault.Invalid("min_grade", "is for the format sft")
	}
	if q.MinGrade == nil {
		lowest := minGrade
		q.MinGrade = &lowest
	}
	return nil
}

// An Export is the lines that are to be written. It holds positions of items, and none of their texts.
type Export struct {
	Count   int  // lines
	Scanned int  // scored items that were read
	Capped  bool // the scan was cut off

	store   *Store
	ws      tenant.ID
	session string
	format  string
	rows    []exportRow
	lines   []line
	chat    bool // prompts and completions are messages, in every line
}

// An exportRow is a scored item, without its texts.
type exportRow struct {
	Position int64
	Step     string
	Prompt   []byte // its digest
	Reward   float64
	Verdict  judge.Verdict
}

// A line is made of an item or, in pairs, of the item and of others with which it makes a pair each.
type line struct {
	row    int
	others []int
}

// Export reads which lines an export has. Items without a reward are not read.
func (s *Store) Export(ctx context.Context, ws tenant.ID, id string, q ExportRequest) (*Export, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	e := &Export{store: s, ws: ws, session: id, format: q.Format}
	err := s.DB.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		r, err := s.find(ctx, in, id)
		if err == nil {
			err = r.kept()
		}
		if err != nil {
			return err
		}
		if e.rows, err = exportRows(ctx, in, id, q.Step, q.Limit+1); err != nil {
			return err
		}
		if e.chat = r.Agentic; !e.chat {
			e.chat, err = hasMessages(ctx, in, id, e.rows)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if e.Capped = len(e.rows) > q.Limit; e.Capped {
		e.rows = e.rows[:q.Limit]
	}
	e.plan(*q.MinGrade)
	return e, nil
}

// plan chooses the lines, in the order of scoring.
func (e *Export) plan(lowest float64) {
	groups := map[string][]int{} // items by step and prompt
	for at := range e.rows {
		r := &e.rows[at]
		switch e.format {
		case formatRL:
			e.add(line{row: at}, 1)
		case formatSFT:
			if r.Verdict == judge.Pass && r.Reward >= lowest {
				e.add(line{row: at}, 1)
			}
		default:
			key := r.Step + "\x00" + string(r.Prompt)
			pairs := e.pairs(at, groups[key])
			if e.Count+len(pairs) > maxPairs {
				e.Capped = true
				return
			}
			groups[key] = append(groups[key], at)
			if len(pairs) > 0 {
				e.add(line{at, pairs}, len(pairs))
			}
		}
		e.Scanned++
	}
}

func (e *Export) add(l line, n int) { e.lines, e.Count = append(e.lines, l), e.Count+n }

// pairs returns the items before at that make a pair with it.
func (e *Export) pairs(at int, before []int) (all []int) {
	for _, other := range before {
		if math.Abs(e.rows[at].Reward-e.rows[other].Reward) >= pairGap-rounding {
			all = append(all, other)
		}
	}
	return all
}

// Write writes the lines. It holds the texts of a few items at a time.
func (e *Export) Write(ctx context.Context, to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	var batch []line
	size := 0
	for l := range e.pieces() {
		if n := 1 + len(l.others); size+n > exportBatch && size > 0 {
			if err := e.write(ctx, out, batch); err != nil {
				return err
			}
			batch, size = batch[:0], 0
		}
		batch, size = append(batch, l), size+1+len(l.others)
	}
	if err := e.write(ctx, out, batch); err != nil {
		return err
	}
	return out.Flush()
}

// pieces returns the lines, each with few others.
func (e *Export) pieces() iter.Seq[line] {
	return func(yield func(line) bool) {
		for _, l := range e.lines {
			if len(l.others) == 0 && !yield(l) {
				return
			}
			for others := range slices.Chunk(l.others, exportBatch-1) {
				if !yield(line{l.row, others}) {
					return
				}
			}
		}
	}
}

// write writes some lines.
func (e *Export) write(ctx context.Context, out *bufio.Writer, batch []line) error {
	items := map[int]*exportItem{}
	for _, l := range batch {
		items[l.row] = nil
		for _, other := range l.others {
			items[other] = nil
		}
	}
	if err := e.read(ctx, items); err != nil {
		return err
	}
	for _, l := range batch {
		if e.format != formatPairwise {
			if err := writeLine(out, e.item, items[l.row]); err != nil {
				return err
			}
		}
		for _, other := range l.others {
			pair := func(i *exportItem) (any, error) { return e.pair(items[l.row], i) }
			if err := writeLine(out, pair, items[other]); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeLine(out *bufio.Writer, line func(*exportItem) (any, error), i *exportItem) error {
	made, err := line(i)
	if err != nil {
		return err
	}
	text, err := json.Marshal(made)
	if err != nil {
		return fmt.Errorf("write a line of an export: %w", err)
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// A decimal is a number that is always written with a decimal point: readers that derive the type of a column from its
// first lines must not take it for a column of integers.
type decimal float64

// MarshalJSON implements json.Marshaler.
func (d decimal) MarshalJSON() ([]byte, error) {
	text := strconv.AppendFloat(nil, float64(d), 'f', -1, 64)
	if !bytes.ContainsRune(text, '.') {
		text = append(text, ".0"...)
	}
	return text, nil
}

// The lines. Prompts and completions are texts or, in every line of a file, messages.
type (
	rlLine struct {
		ID         string     `json:"id"`
		Step       string     `json:"step"`
		Prompt     any        `json:"prompt"`
		Completion any        `json:"completion"`
		Label      string     `json:"label"`
		Reward     decimal    `json:"reward"`
		Verdict    string     `json:"verdict"`
		Grades     []rlGrade  `json:"grades"`
		Flags      []Flag     `json:"flags"`
		ScoredAt   clock.Time `json:"scored_at"`
	}
	rlGrade struct {
		CriterionID string        `json:"criterion_id"`
		Grade       decimal       `json:"grade"`
		Verdict     judge.Verdict `json:"verdict"`
		Critique    string        `json:"critique"`
	}
	sftLine struct {
		Prompt     any     `json:"prompt"`
		Completion any     `json:"completion"`
		Weight     decimal `json:"weight"`
	}
	pairLine struct {
		Prompt         any     `json:"prompt"`
		Chosen         any     `json:"chosen"`
		Rejected       any     `json:"rejected"`
		ChosenReward   decimal `json:"chosen_reward"`
		RejectedReward decimal `json:"rejected_reward"`
		Step           string  `json:"step"`
	}
)

// item returns the line of an item.
func (e *Export) item(i *exportItem) (any, error) {
	prompt, completion, err := i.texts(e.chat)
	if err != nil || e.format == formatSFT {
		return sftLine{prompt, completion, decimal(i.Reward)}, err
	}
	made := rlLine{
		ID: i.ItemID, Step: i.Step, Prompt: prompt, Completion: completion, Label: i.Label, Reward: decimal(i.Reward),
		Verdict: string(i.Verdict), Grades: []rlGrade{}, ScoredAt: i.ScoredAt,
	}
	var grades []JudgeGrade
	if err := json.Unmarshal([]byte(i.Grades), &grades); err != nil {
		return nil, fmt.Errorf("read the grades of an item: %w", err)
	}
	for _, g := range grades {
		if g.Grade != nil && g.Verdict != nil { // an item with a reward has all of them
			made.Grades = append(made.Grades, rlGrade{g.CriterionID, decimal(*g.Grade), *g.Verdict, g.Critique})
		}
	}
	if err := json.Unmarshal([]byte(i.Flags), &made.Flags); err != nil {
		return nil, fmt.Errorf("read the flags of an item: %w", err)
	}
	return made, nil
}

// pair returns the line of a pair.
func (e *Export) pair(a, b *exportItem) (any, error) {
	if a.Reward < b.Reward {
		a, b = b, a
	}
	prompt, chosen, err := a.texts(e.chat)
	if err != nil {
		return nil, err
	}
	_, rejected, err := b.texts(e.chat)
	return pairLine{prompt, chosen, rejected, decimal(a.Reward), decimal(b.Reward), a.Step}, err
}
