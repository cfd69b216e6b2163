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

// None is the segment of exchanges without a system prompt. other is the segment of prompts that match no family,
// once a workspace has maxFamilies of them: more would be of no use.
const (
	None  = "none"
	other = "other"
)

const (
	maxFamilies = 10_000  // families of one workspace
	maxPrompts  = 100_000 // families and exact prompts of all workspaces in memory, about a kilobyte each
	maxSample   = 2_000   // bytes of a prompt that are shown
)

// trimFamilies empties the cache of prompts when it has grown large. The tables hold the same.
func (c *Ingester) trimFamilies() {
	if c.prompts > maxPrompts {
		clear(c.families)
	}
	if len(c.families) == 0 {
		c.prompts = 0
	}
}

// families caches a workspace's prompts. It holds what the tables hold, or less.
type families struct {
	exact map[string]string // exact prompt → family
	index segment.Families
	count int
}

// exactOrNone returns the id of an exact prompt as rows store it.
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
	fresh   bool           // not in the table yet
	print   *segment.Print // set for the first prompt of a new family
}

// segments finds the families of rows, and stores new prompts.
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

// assignFamily finds the family of a prompt, or creates one.
func (c *Ingester) assignFamily(ctx context.Context, tx *db.Tx, p *prompt) error {
	known, err := c.familiesOf(ctx, tx, p.ws)
	if err != nil {
		return err
	}
	if found, ok := known.exact[p.exact]; ok {
		p.segment = found
		return nil
	}
	stored, err := readSegment(ctx, tx.In(p.ws), p.exact)
	if err != nil {
		return err
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
	for r, err := range readFamilies(ctx, tx.In(ws)) {
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

// sampleOf returns as much of a prompt as is shown.
func sampleOf(text string) string {
	if len(text) <= maxSample {
		return text
	}
	return strings.ToValidUTF8(text[:maxSample], "") + "…"
}
