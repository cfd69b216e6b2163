package reward

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/wire/chat"
)

// exportRows reads the scored items of a session, the first first.
func exportRows(ctx context.Context, in db.Scoped, id, step string, limit int) ([]exportRow, error) {
	all, err := db.Query[exportRow](ctx, in, `
		SELECT position, step, prompt, reward, verdict FROM reward_items
		WHERE workspace_id = $1 AND session_id = $2 AND ($3 = '' OR step = $3) AND reward IS NOT NULL
		ORDER BY position LIMIT $4`, id, step, limit)
	if err != nil {
		return nil, fmt.Errorf("read scored items: %w", err)
	}
	return all, nil
}

// hasMessages reports whether any of these prompts is messages, and not a text.
func hasMessages(ctx context.Context, in db.Scoped, session string, rows []exportRow) (bool, error) {
	const batch = 200
	known, prompts := map[string]bool{}, [][]byte{}
	for i := range rows {
		if prompt := string(rows[i].Prompt); !known[prompt] {
			known[prompt] = true
			prompts = append(prompts, rows[i].Prompt)
		}
	}
	for some := range slices.Chunk(prompts, batch) {
		args := []any{session}
		for _, prompt := range some {
			args = append(args, prompt)
		}
		begins, err := db.Query[string](ctx, in, eachKey(`
			SELECT SUBSTR(body, 1, 1) AS begins FROM reward_texts WHERE workspace_id = $1 AND session_id = $2 AND digest = `,
			3, len(some)), args...)
		if err != nil {
			return false, fmt.Errorf("look for messages: %w", err)
		}
		if slices.Contains(begins, "[") {
			return true, nil
		}
	}
	return false, nil
}

// eachKey returns a statement that reads the rows of n keys, which are the parameters from first on; text ends where a
// key belongs. Without statistics of tables that were filled a moment ago, an engine may plan a list of keys as a scan
// of the whole session, and a join as such a scan for each row. An equation of the whole primary key is looked up.
func eachKey(text string, first, n int) string {
	one := make([]string, n)
	for i := range one {
		one[i] = text + "$" + strconv.Itoa(first+i)
	}
	return strings.Join(one, " UNION ALL ")
}

// An exportItem is a scored item with its texts.
type exportItem struct {
	Position           int64
	ItemID, Step       string
	Label              string
	Reward             float64
	Verdict            judge.Verdict
	Grades, Flags      string
	ScoredAt           clock.Time
	Prompt, Completion []byte // digests

	prompt, completion jsontext.Value
}

// texts returns the prompt and the completion: as texts, or as messages.
func (i *exportItem) texts(messages bool) (prompt, completion any, err error) {
	if !messages {
		return i.prompt, i.completion, nil
	}
	if prompt, err = chatOf(i.prompt, chat.RoleUser); err != nil {
		return nil, nil, err
	}
	completion, err = chatOf(i.completion, chat.RoleAssistant)
	return prompt, completion, err
}

// read reads items of an export, by their rows. Each must still be there: the header has said how many there are.
func (e *Export) read(ctx context.Context, items map[int]*exportItem) error {
	if len(items) == 0 {
		return nil
	}
	first, last := int64(math.MaxInt64), int64(0)
	args := []any{e.session, nil, nil}
	for at := range items {
		position := e.rows[at].Position
		first, last = min(first, position), max(last, position)
		args = append(args, position)
	}
	args[1], args[2] = first, last // a range is looked up in the order of scoring, also without statistics
	in := e.store.DB.In(e.ws)
	found, err := db.Query[exportItem](ctx, in, `
		SELECT position, item_id, step, label, reward, verdict, grades, flags, scored_at, prompt, completion
		FROM reward_items WHERE workspace_id = $1 AND session_id = $2 AND position >= $3 AND position <= $4
			AND position IN (`+parameters(5, len(items))+`)`, args...)
	if err != nil {
		return fmt.Errorf("read items of an export: %w", err)
	}
	if err := readTexts(ctx, in, e.session, found); err != nil {
		return err
	}
	byPosition := make(map[int64]*exportItem, len(found))
	for i := range found {
		byPosition[found[i].Position] = &found[i]
	}
	for at := range items {
		i := byPosition[e.rows[at].Position]
		if i == nil || i.prompt == nil || i.completion == nil {
			return fault.Missing.New("the scored items of the reward session %s were deleted meanwhile", e.session)
		}
		items[at] = i
	}
	return nil
}

// readTexts reads the texts of items.
func readTexts(ctx context.Context, in db.Scoped, session string, items []exportItem) error {
	texts, args := map[string]jsontext.Value{}, []any{session}
	for i := range items {
		for _, digest := range [][]byte{items[i].Prompt, items[i].Completion} {
			if _, ok := texts[string(digest)]; !ok {
				texts[string(digest)] = nil
				args = append(args, digest)
			}
		}
	}
	type row struct {
		Digest []byte
		Body   string
	}
	rows, err := db.Query[row](ctx, in, eachKey(`
		SELECT digest, body FROM reward_texts WHERE workspace_id = $1 AND session_id = $2 AND digest = `, 3, len(texts)),
		args...)
	if err != nil {
		return fmt.Errorf("read texts of an export: %w", err)
	}
	for _, r := range rows {
		texts[string(r.Digest)] = jsontext.Value(r.Body)
	}
	for i := range items {
		items[i].prompt, items[i].completion = texts[string(items[i].Prompt)], texts[string(items[i].Completion)]
	}
	return nil
}
