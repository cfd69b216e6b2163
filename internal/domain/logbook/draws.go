package logbook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// A CanaryDraw is a request that the gate of an alias has drawn, and what became of it.
type CanaryDraw struct {
	Seq       int64 // its number in the source, from 1
	Stratum   int64
	At        clock.Time // when it was drawn
	ExpiresAt clock.Time
	RequestID string
	Arm       live.Arm
	Model     string // that answered; empty for none
	Outcome   outcome.Sample
	Latency   time.Duration
	Cost      money.Nano
	Question  capture.Question
}

func canaryDraw(d *capture.Draw) CanaryDraw {
	return CanaryDraw{
		Seq: d.Seq, Stratum: d.Stratum, At: d.At, ExpiresAt: d.Expires, RequestID: d.Request, Arm: d.Arm,
		Model: d.Model, Outcome: d.Outcome, Latency: time.Duration(d.Latency) * time.Microsecond, Cost: d.Cost,
		Question: d.Question,
	}
}

// longestRequest is longer than a request can take, and shorter than draws are kept.
const longestRequest = 24 * time.Hour

// Old reports whether every request that was drawn before d in its source has ended. A number that is missing before an
// old draw is lost, or has expired.
func (d *CanaryDraw) Old(now clock.Time) bool { return now.Sub(d.At) > longestRequest }

// pageSize is how many numbers share a page. Draws are stored in blocks, and no block holds draws of two pages. So the
// draws from a number on are in the blocks that begin on its page or later.
const pageSize = 256

// pageOf returns the first number of a number's page.
func pageOf(seq int64) int64 { return seq - seq%pageSize }

// ofSplit selects the blocks of an alias's epoch.
const ofSplit = `FROM canary_draws WHERE workspace_id = $1 AND alias = $2 AND epoch = $3`

// DrawSources lists the sources of an alias's epoch from one on, in the order of their start. A source numbers draws:
// it is a process from its start to its end, or until its spool lost a record or its node's life ended. Of each node
// all but the last have ended. A number that is missing in one of those, or in a source of a life that is over
// (DrawnIn), is lost; one that is missing in another belongs to a request that may still run, unless a draw after it is
// old. Read the lives first, then the sources, and then their draws. What a dead node had not stored comes when it runs
// again, as higher numbers.
func (s *Store) DrawSources(ctx context.Context, ws tenant.ID, alias, epoch, from string) ([]string, error) {
	all, err := db.Query[string](ctx, s.db.In(ws), `
		WITH RECURSIVE sources (source) AS (
			SELECT MIN(source) `+ofSplit+` AND source >= $4
			UNION ALL
			SELECT (SELECT MIN(source) `+ofSplit+` AND source > sources.source) FROM sources WHERE sources.source IS NOT NULL)
		SELECT source FROM sources WHERE source IS NOT NULL ORDER BY source`, alias, epoch, from)
	if err != nil {
		return nil, fmt.Errorf("read the sources of %s's draws: %w", alias, err)
	}
	return all, nil
}

// DrawnIn returns the life in which a source began: the zero life for a source of the only server.
func DrawnIn(source string) cluster.Life {
	_, life, _ := strings.Cut(source, ".")
	node, epoch, _ := strings.Cut(life, ".")
	n, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return cluster.Life{}
	}
	return cluster.Life{Node: node, Epoch: n}
}

// NameLife names a life as the sources of draws do; "" for the zero life.
func NameLife(l cluster.Life) string {
	if l == (cluster.Life{}) {
		return ""
	}
	return l.Node + "." + strconv.FormatInt(l.Epoch, 10)
}

// SourceBegan returns when a source gave its first number.
func SourceBegan(source string) clock.Time {
	name, _, _ := strings.Cut(source, ".")
	at, _ := id.Born("src", name)
	return clock.Of(at)
}

// Draws lists the draws of a source with a number above afterSeq, in order, at most so many.
//
// The exchange of an answered request was stored before its draw, or with it. If Request does not find it, it was not
// logged, and never will be.
func (s *Store) Draws(
	ctx context.Context, ws tenant.ID, alias, epoch, source string, afterSeq int64, most int,
) (all []CanaryDraw, err error) {
	type block struct {
		FirstSeq int64
		Draws    []byte
	}
	now := clock.Now()
	for row, err := range db.Rows[block](ctx, s.db.In(ws), `
		SELECT first_seq, draws `+ofSplit+` AND source = $4 AND first_seq >= $5 AND last_seq > $6 AND expires_at > $7
		ORDER BY first_seq`, alias, epoch, source, pageOf(afterSeq+1), afterSeq, now) {
		if err != nil {
			return nil, fmt.Errorf("read the draws of %s: %w", alias, err)
		}
		if len(all) >= most && pageOf(row.FirstSeq) > pageOf(all[len(all)-1].Seq) { // the pages before it are complete
			break
		}
		for draw, err := range capture.EachDraw(row.Draws) {
			if err != nil {
				return nil, fmt.Errorf("read the draws of %s: %w", alias, err)
			}
			if draw.Seq > afterSeq && draw.Expires > now {
				all = append(all, canaryDraw(draw))
			}
		}
	}
	slices.SortFunc(all, func(a, b CanaryDraw) int { return cmp.Compare(a.Seq, b.Seq) })
	return all[:min(len(all), most)], nil
}

// A drawRecord is a draw, and its record in the spool.
type drawRecord struct {
	*capture.Draw
	record []byte
}

// A drawBlock is a row of canary_draws.
type drawBlock struct {
	first, last, n int64
	expires        clock.Time
	draws          []byte
}

// insertDraws inserts draws, in blocks.
func insertDraws(ctx context.Context, across db.Scoped, draws []drawRecord) error {
	type key struct {
		capture.Split
		source string
		page   int64
	}
	blocks := map[key]*drawBlock{}
	for _, d := range draws {
		k := key{capture.Split{Workspace: d.Workspace, Alias: d.Alias, Epoch: d.Epoch}, d.Source, pageOf(d.Seq)}
		b := blocks[k]
		if b == nil {
			b = &drawBlock{first: d.Seq}
			blocks[k] = b
		}
		b.first, b.last, b.n, b.expires = min(b.first, d.Seq), max(b.last, d.Seq), b.n+1, max(b.expires, d.Expires)
		b.draws = capture.AppendDraw(b.draws, d.record)
	}
	rows := make([][]any, 0, len(blocks))
	for k, b := range blocks {
		rows = append(rows, []any{k.Workspace, k.Alias, k.Epoch, k.source, b.first, b.last, b.n, b.expires, b.draws})
	}
	return db.Insert(ctx, across, "canary_draws", []string{
		"workspace_id", "alias", "epoch", "source", "first_seq", "last_seq", "n", "expires_at", "draws",
	}, rows)
}
