package logbook

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

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

// families caches a workspace's prompts. With one server it holds what the tables hold, or less. Where servers share
// the database, others add and delete families meanwhile: see assignFresh.
type families struct {
	exact map[string]exactPrompt
	index segment.Families
	names map[string]struct{} // of all families
	read  *db.Tx              // the transaction that compared it with the tables last
}

// An exactPrompt is what is known of an exact prompt.
type exactPrompt struct {
	family string
	until  clock.Time // no server deletes it before
}

// expiryMargin is how much the clocks of servers may differ, as far as prompts expire by them.
const expiryMargin = time.Minute

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
	if found, ok := known.exact[p.exact]; ok && (!c.shared || clock.Now().Add(expiryMargin) < found.until) {
		p.segment = found.family
		known.exact[p.exact] = exactPrompt{found.family, max(found.until, p.first.Expires)}
		return nil
	}
	stored, err := readSegment(ctx, tx.In(p.ws), p.exact)
	if err != nil {
		return err
	}
	if stored != nil {
		p.segment = *stored
	} else if err := c.assignFresh(ctx, tx, known, p); err != nil {
		return err
	}
	known.exact[p.exact] = exactPrompt{p.segment, p.first.Expires}
	c.prompts++
	return nil
}

// assignFresh finds the family of a prompt that is not in the table, or creates one. Where servers share the database,
// the families are compared with the table before one is created: the transaction is serializable, so that of two
// servers that create families of a workspace at the same time, one tries again and finds the other's.
func (c *Ingester) assignFresh(ctx context.Context, tx *db.Tx, known *families, p *prompt) error {
	p.fresh = true
	text := capture.System(p.first.Messages)
	print := segment.Of(text)
	found, ok := known.index.Find(print)
	if c.shared && known.read != tx {
		there := false
		if ok {
			var err error
			if there, err = familyStored(ctx, tx.In(p.ws), found); err != nil {
				return err
			}
		}
		if !there {
			if err := c.compareFamilies(ctx, tx, known, p.ws); err != nil {
				return err
			}
			found, ok = known.index.Find(print)
		}
	}
	switch {
	case ok:
		p.segment = found
	case len(known.names) >= maxFamilies:
		p.segment = other
	default:
		p.segment, p.print = segment.Name(text), &print
		known.index.Add(p.segment, print)
		known.names[p.segment] = struct{}{}
		c.prompts++
	}
	return nil
}

// compareFamilies adds what other servers have stored to a workspace's families, and removes what they have deleted.
func (c *Ingester) compareFamilies(ctx context.Context, tx *db.Tx, known *families, ws tenant.ID) error {
	stored, err := familyNames(ctx, tx.In(ws))
	if err != nil {
		return err
	}
	var added []string
	for _, name := range stored {
		if _, ok := known.names[name]; !ok {
			added = append(added, name)
		}
	}
	if len(known.names)+len(added) > len(stored) { // an index has no deletion
		known.names, known.index = map[string]struct{}{}, segment.Families{}
		err = c.addFamilies(known, readFamilies(ctx, tx.In(ws)))
	} else {
		err = c.addFamilies(known, readNamedFamilies(ctx, tx.In(ws), added))
	}
	known.read = tx
	return err
}

// addFamilies adds stored families.
func (c *Ingester) addFamilies(known *families, stored iter.Seq2[family, error]) error {
	for r, err := range stored {
		if err != nil {
			return fmt.Errorf("read segments: %w", err)
		}
		c.prompts++
		if known.names[r.Segment] = struct{}{}; len(r.Print) == 0 {
			continue
		}
		print, err := segment.ParsePrint(r.Print)
		if err != nil {
			return fmt.Errorf("read segment %s: %w", r.Segment, err)
		}
		known.index.Add(r.Segment, print)
	}
	return nil
}

func (c *Ingester) familiesOf(ctx context.Context, tx *db.Tx, ws tenant.ID) (*families, error) {
	if known := c.families[ws]; known != nil {
		return known, nil
	}
	known := &families{exact: map[string]exactPrompt{}, names: map[string]struct{}{}, read: tx}
	if err := c.addFamilies(known, readFamilies(ctx, tx.In(ws))); err != nil {
		return nil, err
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
