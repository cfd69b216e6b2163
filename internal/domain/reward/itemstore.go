package reward

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// An itemKey identifies an item within a step of a session.
type itemKey struct {
	id      string
	content digest
}

func (i *item) key() itemKey { return itemKey{i.ID, i.content} }

// A keptItem is an item with all its answers, as it is to be stored.
type keptItem struct {
	in      *scoreCall
	item    *item
	outcome outcome
}

// lookupBatch bounds the ids of one look-up: a statement compares each of its ids with each of its digests.
const lookupBatch = 32

// readItems gives the items that have a reward in the table their results.
func readItems(ctx context.Context, in db.Scoped, session, step string, items []*scored) error {
	type row struct {
		ItemID        string
		Content       []byte
		Reward        float64
		Verdict       judge.Verdict
		Grades, Flags string
	}
	for batch := range slices.Chunk(items, lookupBatch) {
		wanted, args := map[itemKey]*scored{}, []any{session, step}
		for _, i := range batch {
			wanted[i.key()] = i
			args = append(args, i.ID)
		}
		for _, i := range batch {
			args = append(args, i.content[:])
		}
		rows, err := db.Query[row](ctx, in, `
			SELECT item_id, content, reward, verdict, grades, flags FROM reward_items
			WHERE workspace_id = $1 AND session_id = $2 AND step = $3 AND item_id IN (`+parameters(4, len(batch))+`)
				AND content IN (`+parameters(4+len(batch), len(batch))+`) AND reward IS NOT NULL`, args...)
		if err != nil {
			return fmt.Errorf("read scored items: %w", err)
		}
		for _, r := range rows {
			i := wanted[itemKey{r.ItemID, digest(r.Content)}]
			if i == nil {
				continue // the id of one item with the content of another
			}
			i.result = &outcome{Reward: &r.Reward, Verdict: r.Verdict}
			if err := json.Unmarshal([]byte(r.Grades), &i.result.Grades); err != nil {
				return fmt.Errorf("read the grades of an item: %w", err)
			}
			if err := json.Unmarshal([]byte(r.Flags), &i.result.Flags); err != nil {
				return fmt.Errorf("read the flags of an item: %w", err)
			}
		}
	}
	return nil
}

// parameters lists n parameters, such as $4, $5, $6.
func parameters(first, n int) string {
	var text strings.Builder
	for i := range n {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString("$" + strconv.Itoa(first+i))
	}
	return text.String()
}

// A kept is what one transaction stores of a session.
type kept struct {
	ws      tenant.ID
	session string
	steps   map[string][]*keptItem
}

// keepItems stores items of any sessions. An item that has a reward stays as it is. One that had none gets a new place
// in the order of scoring.
func keepItems(ctx context.Context, tx *db.Tx, batches [][]*keptItem) error {
	sessions := map[ref]*kept{}
	for _, i := range slices.Concat(batches...) {
		name := ref{i.in.ws, i.in.session.ID}
		if sessions[name] == nil {
			sessions[name] = &kept{i.in.ws, i.in.session.ID, map[string][]*keptItem{}}
		}
		sessions[name].steps[i.in.step] = append(sessions[name].steps[i.in.step], i)
	}
	for _, s := range sessions {
		if err := s.write(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

func (k *kept) write(ctx context.Context, tx *db.Tx) error {
	in := tx.In(k.ws)
	var fresh []*keptItem
	for step, items := range k.steps {
		unscored, err := k.unscored(ctx, in, step, items)
		if err != nil {
			return err
		}
		fresh = append(fresh, unscored...)
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := k.writeTexts(ctx, tx, fresh); err != nil {
		return err
	}
	scored, err := k.writeItems(ctx, tx, fresh)
	if err != nil || scored == 0 {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		UPDATE reward_sessions SET scored = scored + $3 WHERE workspace_id = $1 AND id = $2`,
		k.session, scored); err != nil {
		return fmt.Errorf("count scored items: %w", err)
	}
	return nil
}

// unscored returns the items of a step that have no reward in the table, each once.
func (k *kept) unscored(ctx context.Context, in db.Scoped, step string, items []*keptItem) ([]*keptItem, error) {
	once, known := []*keptItem{}, map[itemKey]bool{}
	var looked []*scored
	for _, i := range items {
		if known[i.item.key()] {
			continue
		}
		known[i.item.key()] = true
		once, looked = append(once, i), append(looked, &scored{item: *i.item})
	}
	if err := readItems(ctx, in, k.session, step, looked); err != nil {
		return nil, err
	}
	at := -1
	return slices.DeleteFunc(once, func(*keptItem) bool { at++; return looked[at].result != nil }), nil
}

// writeTexts stores the prompts and the completions that the session does not have.
func (k *kept) writeTexts(ctx context.Context, tx *db.Tx, items []*keptItem) error {
	texts := map[digest]string{}
	for _, i := range items {
		texts[i.item.prompt], texts[i.item.completion] = string(i.item.Prompt), string(i.item.Completion)
	}
	args := []any{k.session}
	for d := range texts {
		args = append(args, d[:])
	}
	stored, err := db.Query[[]byte](ctx, tx.In(k.ws), `
		SELECT digest FROM reward_texts WHERE workspace_id = $1 AND session_id = $2
			AND digest IN (`+parameters(3, len(texts))+`)`, args...)
	if err != nil {
		return fmt.Errorf("look for stored texts: %w", err)
	}
	for _, d := range stored {
		delete(texts, digest(d))
	}
	rows := make([][]any, 0, len(texts))
	for d, body := range texts {
		rows = append(rows, []any{k.ws, k.session, d[:], body})
	}
	return db.Insert(ctx, tx.Across("texts of several sessions are stored together"), "reward_texts",
		[]string{"workspace_id", "session_id", "digest", "body"}, rows)
}

var itemColumns = []string{
	"workspace_id", "session_id", "step", "item_id", "content", "position", "prompt", "completion", "label", "reward",
	"verdict", "grades", "flags", "scored_at", "checked",
}

const itemKeyColumns = 5

// replaced is what an item gets that is judged again. That the anchor has drawn it stays known.
const replaced = `position = excluded.position, reward = excluded.reward, verdict = excluded.verdict,
	grades = excluded.grades, flags = excluded.flags, scored_at = excluded.scored_at`

// writeItems stores items after all others of the session, and returns how many have a reward.
func (k *kept) writeItems(ctx context.Context, tx *db.Tx, items []*keptItem) (scored int64, err error) {
	last, err := db.One[int64](ctx, tx.In(k.ws), `
		SELECT COALESCE(MAX(position), 0) FROM reward_items WHERE workspace_id = $1 AND session_id = $2`, k.session)
	if err != nil {
		return 0, fmt.Errorf("number items: %w", err)
	}
	rows := make([][]any, len(items))
	for at, i := range items {
		grades, err := json.Marshal(i.outcome.Grades)
		if err != nil {
			return 0, fmt.Errorf("write grades: %w", err)
		}
		flags, err := json.Marshal(i.outcome.Flags)
		if err != nil {
			return 0, fmt.Errorf("write flags: %w", err)
		}
		var reward any
		if i.outcome.Reward != nil {
			scored++
			reward = *i.outcome.Reward
		}
		rows[at] = []any{
			k.ws, k.session, i.in.step, i.item.ID, i.item.content[:], last + int64(at) + 1, i.item.prompt[:],
			i.item.completion[:], i.item.Label, reward, i.outcome.Verdict, string(grades), string(flags),
			i.in.store.now(), 0,
		}
	}
	return scored, db.Merge(ctx, tx.Across("items of several sessions are stored together"), "reward_items", itemColumns,
		itemKeyColumns, replaced, rows)
}
