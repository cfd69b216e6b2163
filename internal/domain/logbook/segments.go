package logbook

import (
	"context"
	"fmt"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
	"sovereign/internal/text/segment"
)

// None is the segment of exchanges without a system prompt; other that of those whose prompts are like no other, once a workspace has
// too many families to be of use to anybody.
const (
	None  = "none"
	other = "other"
)

const (
	maxFamilies = 10_000  // of a workspace
	maxPrompts  = 100_000 // families and exact prompts of all workspaces that are kept in memory, of about a kilobyte each
	maxSample   = 2_000   // bytes of a prompt that are shown
)

// trim forgets what is known of prompts when it has become much: the tables have it.
func (c *Ingester) trimFamilies() {
	if c.prompts > maxPrompts {
		clear(c.families)
	}
	if len(c.families) == 0 {
		c.prompts = 0
	}
}

// families are what is known of a workspace's prompts. It is what the tables say, or less.
type families struct {
	exact map[string]string // the families of exact prompts
	index segment.Families
	count int
}

// exactly is the name of an exact prompt as rows have it.
func exactOrNone(exact string) string {
	if exact == "" {
		return None
	}
	return exact
}

// A prompt is an exact system prompt that rows of a batch have.
type prompt struct {
	ws      tenant.ID
	exact   string
	segment string
	first   *capture.Row
	last    clock.Time
	expires clock.Time
	fresh   bool           // it was not in the table
	print   *segment.Print // of a family's first
}

// segments finds the families of rows, and enters prompts that are new.
func (c *Ingester) segments(ctx context.Context, tx *db.Tx, across db.Scoped, rows []*capture.Row) ([]string, error) {
	type key struct {
		ws    tenant.ID
		exact string
	}
	prompts, order := map[key]*prompt{}, []*prompt{}
	segments := make([]string, len(rows))
	for i, r := range rows {
		if segments[i] = None; r.Exact == "" {
			continue
		}
		p := prompts[key{r.Workspace, r.Exact}]
		if p == nil {
			p = &prompt{ws: r.Workspace, exact: r.Exact, first: r}
			if err := c.assignFamily(ctx, tx, p); err != nil {
				return nil, err
			}
			prompts[key{r.Workspace, r.Exact}] = p
			order = append(order, p)
		}
		p.last, p.expires = max(p.last, r.At), max(p.expires, r.Expires)
		segments[i] = p.segment
	}
	return segments, savePrompts(ctx, across, order)
}

// place finds the family of a prompt, or begins one with it.
func (c *Ingester) assignFamily(ctx context.Context, tx *db.Tx, p *prompt) error {
	known, err := c.familiesOf(ctx, tx, p.ws)
	if err != nil {
		return err
	}
	if found, ok := known.exact[p.exact]; ok {
		p.segment = found
		return nil
	}
	stored, err := db.Maybe[string](ctx, tx.In(p.ws), `SELECT segment FROM log_variants WHERE workspace_id = $1 AND segment_exact = $2`, p.exact)
	if err != nil {
		return fmt.Errorf("read a prompt's segment: %w", err)
	}
	if stored != nil {
		p.segment = *stored
	} else {
		p.fresh = true
		text := capture.System(p.first.Messages)
		print := segment.Of(text)
		var ok bool
		switch p.segment, ok = known.index.Find(print); {
		case ok:
		case known.count >= maxFamilies:
			p.segment = other
		default:
			p.segment, p.print = segment.Name(text), &print
			known.index.Add(p.segment, print)
			known.count++
			c.prompts++
		}
	}
	known.exact[p.exact] = p.segment
	c.prompts++
	return nil
}

func (c *Ingester) familiesOf(ctx context.Context, tx *db.Tx, ws tenant.ID) (*families, error) {
	if known := c.families[ws]; known != nil {
		return known, nil
	}
	known := &families{exact: map[string]string{}}
	type row struct {
		Segment string
		Print   []byte
	}
	for r, err := range db.Rows[row](ctx, tx.In(ws), `SELECT segment, print FROM log_families WHERE workspace_id = $1`) {
		if err != nil {
			return nil, fmt.Errorf("read segments: %w", err)
		}
		c.prompts++
		if known.count++; len(r.Print) == 0 {
			continue
		}
		print, err := segment.ParsePrint(r.Print)
		if err != nil {
			return nil, fmt.Errorf("read segment %s: %w", r.Segment, err)
		}
		known.index.Add(r.Segment, print)
	}
	c.families[ws] = known
	c.prompts++
	return known, nil
}

// keep enters prompts and families, or prolongs their time.
func savePrompts(ctx context.Context, across db.Scoped, prompts []*prompt) error {
	variants, kept := make([][]any, len(prompts)), map[[2]string][]any{}
	for i, p := range prompts {
		sample := []byte{}
		if p.fresh {
			sample = []byte(sampleOf(capture.System(p.first.Messages)))
		}
		variants[i] = []any{p.ws, p.exact, p.segment, sample, p.first.At, p.last, p.expires}
		key := [2]string{string(p.ws), p.segment}
		family := kept[key]
		if family == nil {
			family = []any{p.ws, p.segment, []byte{}, p.expires}
			kept[key] = family
		}
		if p.print != nil {
			family[2] = p.print.Bytes()
		}
		if expires, _ := family[3].(clock.Time); p.expires > expires {
			family[3] = p.expires
		}
	}
	err := db.Merge(ctx, across, "log_variants", []string{"workspace_id", "segment_exact", "segment", "prompt", "first_at", "last_at", "expires_at"}, 2, `
		last_at = CASE WHEN excluded.last_at > log_variants.last_at THEN excluded.last_at ELSE log_variants.last_at END,
		expires_at = CASE WHEN excluded.expires_at > log_variants.expires_at THEN excluded.expires_at ELSE log_variants.expires_at END`, variants)
	if err != nil {
		return err
	}
	families := make([][]any, 0, len(kept))
	for _, family := range kept {
		families = append(families, family)
	}
	return db.Merge(ctx, across, "log_families", []string{"workspace_id", "segment", "print", "expires_at"}, 2, `
		expires_at = CASE WHEN excluded.expires_at > log_families.expires_at THEN excluded.expires_at ELSE log_families.expires_at END`, families)
}

// beginning is as much of a prompt as is shown.
func sampleOf(text string) string {
	if len(text) <= maxSample {
		return text
	}
	return strings.ToValidUTF8(text[:maxSample], "") + "…"
}
