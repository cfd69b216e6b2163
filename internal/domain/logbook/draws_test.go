package logbook

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// drawAt returns the draw of a time, a source and a number.
func drawAt(at clock.Time, source string, seq int64) *capture.Draw {
	return &capture.Draw{
		Workspace: home, Alias: "fast", Epoch: "ep_1", Stratum: 3,
		Place:   capture.Place{Source: source, Seq: seq, At: at, Expires: at.Add(7 * 24 * time.Hour)},
		Request: fmt.Sprintf("req_%s_%d", source, seq), Arm: live.CanaryArm, Model: "p/m", Outcome: outcome.Answered, Latency: 1500, Cost: 42,
		Question: capture.Question{15: byte(seq)},
	}
}

// ingestDraws appends draws to the spool, and ingests them.
func ingestDraws(t rapid.TB, c *Ingester, draws ...*capture.Draw) {
	t.Helper()
	for _, draw := range draws {
		if !c.spool.Append(draw.Append(nil)) {
			t.Fatal("no room")
		}
	}
	if err := c.Ingest(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func sourcesOf(t *testing.T, d *db.DB, ws tenant.ID, alias, epoch string) []string {
	t.Helper()
	sources, err := NewStore(d).DrawSources(t.Context(), ws, alias, epoch, "")
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func drawsOf(t *testing.T, d *db.DB, source string, after int64, most int) []CanaryDraw {
	t.Helper()
	draws, err := NewStore(d).Draws(t.Context(), home, "fast", "ep_1", source, after, most)
	if err != nil {
		t.Fatal(err)
	}
	return draws
}

// Draws come in the order in which requests end. They are read in the order in which they were drawn, source by
// source, and a number that is missing is seen.
func TestDrawsAreReadInTheOrderOfTheirNumbers(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, now := newIngester(t, d), clock.Now()
		var all []*capture.Draw
		for _, source := range []string{"src_a", "src_b"} {
			for seq := int64(1); seq <= 600; seq++ {
				if source == "src_b" || seq != 20 { // which was lost
					all = append(all, drawAt(now+clock.Time(seq), source, seq))
				}
			}
		}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		ingestDraws(t, c, all...)
		want := []string{"src_a", "src_b"}
		if got := sourcesOf(t, d, home, "fast", "ep_1"); !cmp.Equal(got, want) {
			t.Errorf("%+v; want %+v", got, want)
		}
		later, err := NewStore(d).DrawSources(t.Context(), home, "fast", "ep_1", "src_b")
		if err != nil || !cmp.Equal(later, want[1:]) {
			t.Errorf("from src_b on %v: %v", later, err)
		}
		var seen []int64
		for after := int64(0); ; {
			page := drawsOf(t, d, "src_a", after, 7)
			if len(page) == 0 {
				break
			}
			for _, draw := range page {
				seen, after = append(seen, draw.Seq), draw.Seq
			}
		}
		if len(seen) != 599 || seen[18] != 19 || seen[19] != 21 || seen[598] != 600 {
			t.Errorf("%v", seen)
		}
		got, draw := drawsOf(t, d, "src_b", 6, 1)[0], drawAt(now+7, "src_b", 7)
		if want := (CanaryDraw{7, 3, draw.At, draw.Expires, draw.Request, live.CanaryArm, "p/m", outcome.Answered, 1500 * time.Microsecond, 42, draw.Question}); got != want {
			t.Errorf("%+v; want %+v", got, want)
		}
	})
}

// Sources of several nodes are listed in the order of their start, and each names its life.
func TestTheSourcesOfSeveralNodesNameTheirLives(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, now := newIngester(t, d), clock.Now()
		lives := []cluster.Life{{Node: "jrn_b", Epoch: 12}, {Node: "jrn_a", Epoch: 3}, {}}
		var want []string
		for i, life := range lives {
			source := id.At("src", now.Add(time.Duration(i)*time.Second).Std())
			if name := NameLife(life); name != "" {
				source += "." + name
			}
			want = append(want, source)
			ingestDraws(t, c, drawAt(now, source, 1))
		}
		got := sourcesOf(t, d, home, "fast", "ep_1")
		if !cmp.Equal(got, want) {
			t.Fatalf("%v; want %v", got, want)
		}
		for i, source := range got {
			if DrawnIn(source) != lives[i] || SourceBegan(source) != now.Add(time.Duration(i)*time.Second) || len(drawsOf(t, d, source, 0, 9)) != 1 {
				t.Errorf("%s is of %v from %v on", source, DrawnIn(source), SourceBegan(source))
			}
		}
	})
}

// However draws come into the table, a page of them is what a scan of all would find.
func TestAPageOfDrawsIsWhatThereIs(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, now, round := newIngester(t, d), clock.Now(), 0
		rapid.Check(t, func(t *rapid.T) {
			round++
			epoch, want := fmt.Sprintf("ep_%d", round), map[string][]int64{}
			var waiting []*capture.Draw
			for _, source := range []string{"src_a", "src_b"}[:rapid.IntRange(1, 2).Draw(t, "sources")] {
				skip := rapid.IntRange(1, 9).Draw(t, "skip") // each such number is lost
				last := rapid.Int64Range(1, 3*pageSize).Draw(t, "draws")
				for seq := int64(1); seq <= last; seq++ {
					draw := drawAt(now, source, seq)
					draw.Epoch = epoch
					switch int(seq) % 10 {
					case skip:
						continue
					case 0:
						draw.Expires = now - 1
					default:
						want[source] = append(want[source], seq)
					}
					waiting = append(waiting, draw)
				}
			}
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
			for i := range waiting { // requests end out of order, but not at any time
				j := min(i+random.IntN(80), len(waiting)-1)
				waiting[i], waiting[j] = waiting[j], waiting[i]
			}
			for len(waiting) > 0 {
				n := min(1+random.IntN(120), len(waiting))
				ingestDraws(t, c, waiting[:n]...)
				waiting = waiting[n:]
			}
			for source, seqs := range want {
				after, most := rapid.Int64Range(0, 3*pageSize).Draw(t, "after"), rapid.IntRange(1, 2*pageSize).Draw(t, "most")
				draws, err := NewStore(d).Draws(context.Background(), home, "fast", epoch, source, after, most)
				if err != nil {
					t.Fatal(err)
				}
				var got []int64
				for i := range draws {
					got = append(got, draws[i].Seq)
				}
				from, _ := slices.BinarySearch(seqs, after+1)
				if part := seqs[from:min(from+most, len(seqs))]; !slices.Equal(got, part) {
					t.Fatalf("%s after %d, at most %d: %v; want %v", source, after, most, got, part)
				}
			}
		})
	})
}

// Another workspace's draws, or those of another alias or epoch, are not seen.
func TestDrawsBelongToTheirSplit(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, now := newIngester(t, d), clock.Now()
		ingestDraws(t, c, drawAt(now, "src_a", 1))
		for _, of := range []capture.Split{{Workspace: "ws_2", Alias: "fast", Epoch: "ep_1"}, {Workspace: home, Alias: "slow", Epoch: "ep_1"}, {Workspace: home, Alias: "fast", Epoch: "ep_2"}} {
			if got := sourcesOf(t, d, of.Workspace, of.Alias, of.Epoch); len(got) != 0 {
				t.Errorf("%v: %+v", of, got)
			}
			draws, err := NewStore(d).Draws(t.Context(), of.Workspace, of.Alias, of.Epoch, "src_a", 0, 10)
			if err != nil || len(draws) != 0 {
				t.Errorf("%v: %+v, %v", of, draws, err)
			}
		}
	})
}

// Draws are no logs: they are not listed, counted, scanned or exported.
func TestDrawsAreNotLogs(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, now := newIngester(t, d), clock.Now()
		ingestDraws(t, c, drawAt(now, "src_a", 1), drawAt(now+1, "src_a", 2))
		wantRows(t, d, 0)
		if segments, err := NewStore(d).Segments(t.Context(), home, 10, 0); err != nil || len(segments) != 0 {
			t.Errorf("%+v, %v", segments, err)
		}
		for _, table := range []string{"log_rows", "log_counts", "log_variants", "log_families", "log_traces"} {
			n, err := db.One[int64](t.Context(), d.Across("the test counts all"), `SELECT COUNT(*) FROM `+table)
			if err != nil || n != 0 {
				t.Errorf("%s has %d rows, %v", table, n, err)
			}
		}
	})
}

// An expired draw is not read any more, and it is deleted like a row.
func TestDrawsExpire(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, now := newIngester(t, d), clock.Now()
		var all []*capture.Draw
		for seq := range int64(2*deleteBatch + 3) {
			draw := drawAt(now-1_000_000+clock.Time(seq), "src_a", seq+1)
			draw.Expires = now - 1
			all = append(all, draw)
		}
		ingestDraws(t, c, append(all, drawAt(now, "src_a", 1000))...)
		if got := drawsOf(t, d, "src_a", 0, 10); len(got) != 1 || got[0].Seq != 1000 {
			t.Errorf("%+v", got)
		}
		if err := c.deleteExpiredWhenDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := db.One[int64](t.Context(), d.Across("the test counts all"), `SELECT COALESCE(CAST(SUM(n) AS BIGINT), 0) FROM canary_draws`); err != nil || n != 1 {
			t.Errorf("%d are left, %v", n, err)
		}
		if c.nextExpiry > clock.Now().Add(time.Minute) {
			t.Errorf("the next expiry is at %v", c.nextExpiry)
		}
	})
}

// A draw that the database refuses is set aside. The others are stored, and so are the rows.
func TestADrawThatCannotBeStoredIsSetAside(t *testing.T) {
	eachLogs(t, func(t *testing.T, d *db.DB) {
		c, now := newIngester(t, d), clock.Now()
		ingestDraws(t, c, drawAt(now, "src_a", 1))
		appendRows(t, c, 2)
		ingestDraws(t, c, drawAt(now, "src_a", 2), drawAt(now, "src_a", 1), drawAt(now, "src_a", 3))
		wantRows(t, d, 2)
		if got := drawsOf(t, d, "src_a", 0, 10); len(got) != 3 || c.SetAside() != 1 {
			t.Errorf("%d draws, %d set aside", len(got), c.SetAside())
		}
	})
}
