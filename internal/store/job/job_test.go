package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/cluster"
)

var statuses = []Status{Queued, Running, Done, Failed, Cancelled}

func TestEveryPairOfStatusesIsAMoveOrRefused(t *testing.T) {
	permitted := map[string]bool{
		"QUEUED RUNNING": true, "QUEUED CANCELLED": true,
		"RUNNING QUEUED": true, "RUNNING DONE": true, "RUNNING FAILED": true, "RUNNING CANCELLED": true,
	}
	if len(transitions) != len(statuses) {
		t.Fatalf("moves from %d statuses of %d", len(transitions), len(statuses))
	}
	for _, from := range statuses {
		for _, to := range statuses {
			r := record{Status: from, Claim: "run_1"}
			err := r.move(to, 5)
			if want := permitted[fmt.Sprint(from, " ", to)]; (err == nil) != want {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if err != nil && r != (record{Status: from, Claim: "run_1"}) {
				t.Errorf("a refused move changed %+v", r)
			}
			if err == nil && (r.Status != to || r.Claim != "" || (r.FinishedAt != nil) != to.Ended() || (r.StartedAt != nil) != (to == Running)) {
				t.Errorf("%s to %s: %+v", from, to, r)
			}
		}
	}
	for _, s := range statuses {
		if s.Ended() != slices.Contains([]Status{Done, Failed, Cancelled}, s) {
			t.Errorf("%s: ended %v", s, s.Ended())
		}
	}
}

// Whatever happens to a job in whatever order: an ended job never changes, a running job has a claim, a requested
// cancellation is never forgotten, and tries and crashes without progress are bounded.
func TestRulesHoldInEveryOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := record{Kind: "count", Status: Queued}
		tokens := rapid.SampledFrom([]string{"run_a", "run_b"})
		outcomes := rapid.SampledFrom([]error{nil, errors.New("broken"), fault.Conflict("no"), fault.Unavailable.New("away").In(time.Second)})
		causes := rapid.SampledFrom([]error{nil, nil, nil, ErrStopping, ErrCancelled, ErrLost})
		t.Repeat(map[string]func(*rapid.T){
			"claim":  func(t *rapid.T) { _ = r.claim(tokens.Draw(t, "token"), cluster.Life{}, 1) },
			"park":   func(t *rapid.T) { _ = r.setAside(tokens.Draw(t, "token"), cluster.Life{}) },
			"cancel": func(*rapid.T) { _ = r.cancel(2) },
			"free":   func(t *rapid.T) { _ = r.releaseClaim(tokens.Draw(t, "token"), rapid.Bool().Draw(t, "died"), 3) },
			"settle": func(t *rapid.T) {
				before, token := r, tokens.Draw(t, "token")
				wait, err := r.settle(token, outcomes.Draw(t, "outcome"), causes.Draw(t, "cause"), 4)
				if owned := before.Status == Running && before.Claim == token; owned != (err == nil) || (!owned && r != before) {
					t.Fatalf("%+v is settled by %s: %+v %v", before, token, r, err)
				}
				if (wait > 0) != (err == nil && r.Status == Queued && r.Claim != "") {
					t.Fatalf("waits for %s: %+v", wait, r)
				}
			},
			"tell": func(t *rapid.T) {
				if r.mayWrite(tokens.Draw(t, "token")) == nil {
					r.applyTally(Tally{Progress: Progress{Done: r.Done + rapid.Int64Range(0, 1).Draw(t, "units")}})
				}
			},
			"": func(t *rapid.T) {
				switch {
				case r.Status == Running && r.Claim == "", r.Status.Ended() && r.Claim != "", r.Status.Ended() != (r.FinishedAt != nil):
					t.Fatalf("%+v", r)
				case r.Attempts > maxDeferrals, r.Losses > maxLosses, r.Status != Failed && (r.Attempts == maxDeferrals || r.Losses == maxLosses):
					t.Fatalf("tried too often: %+v", r)
				case r.CancelRequested && r.Status != Running && r.Status != Cancelled:
					t.Fatalf("a cancellation is forgotten: %+v", r)
				case (r.Status == Failed) != (r.Failure != ""):
					t.Fatalf("a failure without a word, or a word without one: %+v", r)
				}
				if !r.Status.Ended() {
					return
				}
				end := r
				_, settled := r.settle("run_a", nil, nil, 9)
				if r.claim("run_a", cluster.Life{}, 9) == nil || r.setAside("run_a", cluster.Life{}) == nil || settled == nil || r.mayWrite("run_a") == nil || r.releaseClaim("run_a", true, 9) == nil || r != end {
					t.Fatalf("%+v is no end: %+v", end, r)
				}
				if err := r.cancel(9); r != end || (err == nil) != (end.Status == Cancelled) {
					t.Fatalf("cancelled after its end: %+v %v", r, err)
				}
			},
		})
	})
}

func TestProgressResetsFailures(t *testing.T) {
	r := record{Status: Running, Claim: "run_1", Done: 2, Attempts: 4, Losses: 9}
	r.applyTally(Tally{Progress: Progress{Done: 2, Total: 9}, Cost: 5})
	if r.Attempts != 4 || r.Losses != 9 || r.Total != 9 || r.Cost != 5 {
		t.Errorf("without progress: %+v", r)
	}
	r.applyTally(Tally{Progress: Progress{Done: 3, Total: 9}})
	if r.Attempts != 0 || r.Losses != 0 {
		t.Errorf("with progress: %+v", r)
	}
}

func TestRetryDelaysGrowAndFollowTheRefusalUpToABound(t *testing.T) {
	var all []time.Duration
	for _, n := range []int64{0, 1, 2, 3, 28} {
		all = append(all, retryDelay(n+1, nil))
	}
	if want := []time.Duration{time.Second, 4 * time.Second, 16 * time.Second, time.Minute, time.Minute}; !slices.Equal(all, want) {
		t.Errorf("want %v, got %v", want, all)
	}
	for asked, want := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 2 * time.Minute: 2 * time.Minute, time.Hour: maxRequestedDelay} {
		if got := retryDelay(1, fault.RateLimited.New("busy").In(asked)); got != want {
			t.Errorf("asked for %s: want %s, got %s", asked, want, got)
		}
	}
}

func TestFailureIsTextThatBothEnginesKeep(t *testing.T) {
	if got, want := storableText("a\x00b\xffc"), "a\uFFFDb\uFFFDc"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	if got := storableText(strings.Repeat("é", 2*maxFailure)); got != strings.Repeat("é", maxFailure) {
		t.Errorf("%d bytes are left", len(got))
	}
}

// What embeds a job shows it among its own fields.
func TestJobIsShownWithinWhatItIsFor(t *testing.T) {
	type eval struct {
		ID string `json:"id"`
		Job
	}
	at, why := clock.Of(time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)), "no money"
	for want, e := range map[string]eval{
		`{"id":"evl_1","status":"QUEUED","progress":{"done":0,"total":3},"estimated_cost_usd":0.5,"cost_usd":0,"error":null,` +
			`"created_at":"2026-05-01T10:00:00.000Z","started_at":null,"finished_at":null}`: {"evl_1", Job{Status: Queued, Progress: Progress{0, 3}, Estimate: 500_000_000, CreatedAt: at}},
		`{"id":"evl_1","status":"FAILED","progress":{"done":2,"total":3},"estimated_cost_usd":0.5,"cost_usd":0.000000001,"error":"no money",` +
			`"created_at":"2026-05-01T10:00:00.000Z","started_at":"2026-05-01T10:00:00.000Z","finished_at":"2026-05-01T10:00:00.000Z"}`: {"evl_1", Job{
			Status: Failed, Progress: Progress{2, 3}, Estimate: 500_000_000, Cost: 1, Error: &why, CreatedAt: at, StartedAt: &at, FinishedAt: &at,
		}},
	} {
		if got, err := json.Marshal(e); err != nil || string(got) != want {
			t.Errorf("want %s\ngot  %s %v", want, got, err)
		}
	}
}

// However many jobs each workspace queues, and however long they take: no slot stays empty that a job may use, and
// while a workspace waits that has nothing running, no other is served twice.
func TestAWorkspaceDoesNotWaitForAnothersQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots, perWorkspace := rapid.IntRange(1, 5).Draw(t, "slots"), rapid.IntRange(1, 3).Draw(t, "per workspace")
		queues := map[tenant.ID]int{}
		for i := range rapid.IntRange(1, 8).Draw(t, "workspaces") {
			queues[tenant.ID(fmt.Sprint("ws_", i))] = rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "queue")
		}
		running, served, passed := map[tenant.ID]int{}, map[tenant.ID]uint64{}, map[tenant.ID]map[tenant.ID]int{}
		var order []tenant.ID // of what runs
		for turn := uint64(1); turn < 60; turn++ {
			var heads []queueHead
			for ws, n := range queues {
				if n > 0 {
					heads = append(heads, queueHead{WorkspaceID: ws, ID: fmt.Sprint("job_", n), CreatedAt: clock.Time(-n)})
				}
			}
			slices.SortFunc(heads, func(a, b queueHead) int { return cmp.Compare(a.WorkspaceID, b.WorkspaceID) })
			vacant := slots - len(order)
			chosen := choose(heads, running, served, perWorkspace, vacant)
			if len(chosen) > vacant {
				t.Fatalf("%d for %d slots", len(chosen), vacant)
			}
			fit := slices.DeleteFunc(heads, func(h queueHead) bool { return running[h.WorkspaceID] >= perWorkspace })
			if len(chosen) != min(vacant, len(fit)) {
				t.Fatalf("%d slots stay empty for %d jobs", vacant-len(chosen), len(fit))
			}
			for _, h := range chosen {
				queues[h.WorkspaceID]--
				running[h.WorkspaceID]++
				served[h.WorkspaceID] = turn
				order = append(order, h.WorkspaceID)
			}
			for _, waiting := range fit {
				ws := waiting.WorkspaceID
				if running[ws] > 0 {
					passed[ws] = nil
					continue
				}
				if passed[ws] == nil {
					passed[ws] = map[tenant.ID]int{}
				}
				for _, h := range chosen {
					if passed[ws][h.WorkspaceID]++; passed[ws][h.WorkspaceID] > 1 {
						t.Fatalf("%s was served twice while %s waited", h.WorkspaceID, ws)
					}
				}
			}
			for n := rapid.IntRange(0, len(order)).Draw(t, "ended"); n > 0; n-- {
				i := rapid.IntRange(0, len(order)-1).Draw(t, "which")
				running[order[i]]--
				order = slices.Delete(order, i, i+1)
			}
		}
	})
}
