package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/wire/upstream"
)

func TestNothingIsChargedBeforeTheAnswerIsKept(t *testing.T) {
	for _, answer := range []string{good, silence} {
		b := newBench(t)
		b.answer = whole(answer)
		q := internalTo("m")
		var kept *infer.Answer
		q.Keep = func(a *infer.Answer) error {
			kept = a
			b.free()
			if m := b.funds.Balance(home); m.Held < a.Cost || string(a.Body) != answer {
				t.Errorf("%+v: %s", m, a.Body)
			}
			return nil
		}
		a, err := b.complete(t.Context(), q)
		if err != nil || a != kept {
			t.Fatalf("%v", err)
		}
		if all := b.entries(); len(all) != 1 || all[0].Kind != journal.Settled || all[0].Usage != a.Usage || all[0].Cost != a.Cost || all[0].Charged != a.Cost {
			t.Errorf("%+v", all)
		}
	}
}

func TestAnAnswerThatCouldNotBeKeptIsNotCharged(t *testing.T) {
	b, read := measured(t)
	b.answer = whole(good)
	q := internalTo("m")
	full := errors.New("no room for the answer")
	q.Keep = func(*infer.Answer) error { return full }
	if _, err := b.complete(t.Context(), q); !errors.Is(err, full) {
		t.Error(err)
	}
	b.free()
	if len(b.sent) != 1 {
		t.Errorf("asked %d times", len(b.sent))
	}
	if m := read("sovereign_gateway_requests_total"); len(m) != 1 || label(m[0], "outcome") != string(outcome.Nothing) || read("sovereign_gateway_cost_usd_total") != nil {
		t.Errorf("%v", m)
	}
	q.Keep = func(*infer.Answer) error { panic("a fault of the asker's") }
	func() {
		defer func() { _ = recover() }()
		_, _ = b.Complete(t.Context(), q)
		t.Error("no panic")
	}()
	b.free()
	if m := b.funds.Balance(home); m.Held != 0 || b.Running() != 0 || b.Bounds.Buffered.Used() != 0 {
		t.Errorf("%+v, %d running, %d bytes", m, b.Running(), b.Bounds.Buffered.Used())
	}
}

func TestAnAnswerThatWasKeptIsOwedUntilTheJournalCanBeWritten(t *testing.T) {
	for _, answer := range []string{good, silence} {
		b := newBench(t)
		b.answer = whole(answer)
		q := internalTo("m")
		q.Keep = func(*infer.Answer) error {
			b.disk.Fail = func(string, int) (int, error) { return 0, journaltest.ErrDisk }
			return nil
		}
		a, err := b.complete(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if m := b.funds.Balance(home); m.Held < a.Cost || m.Spent != 0 || b.Till.Collect() != 1 {
			t.Errorf("the hold must stand: %+v", m)
		}
		sent := len(b.sent)
		if _, err := b.complete(t.Context(), q); fault.From(err) == nil || fault.From(err).Status != http.StatusServiceUnavailable || len(b.sent) != sent {
			t.Errorf("another, while nothing can be recorded: %v", err)
		}
		b.disk.Fail = nil
		if left := b.Till.Collect(); left != 0 {
			t.Errorf("%d are owed", left)
		}
		if e := b.settled(); e.Usage != a.Usage || e.Charged != a.Cost || e.Counted != (answer == silence) || len(b.entries()) != 1 {
			t.Errorf("%+v", b.entries())
		}
		if m := b.funds.Balance(home); m.Held != 0 || m.Spent != a.Cost {
			t.Errorf("%+v", m)
		}
	}
}

// found returns what the next process finds in the journal.
func found(t *testing.T, disk *journaltest.Disk) (charged []journal.Entry) {
	t.Helper()
	j, err := journal.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	for at := (journal.Position{Segment: 1}); ; {
		some, next, err := j.Read(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return charged
		}
		for _, e := range some {
			if e.Kind != journal.Probe {
				charged = append(charged, e)
			}
		}
		at = next
	}
}

// A process may be killed while the provider answers, right after the answer was kept, and when it was charged: never
// is an answer charged that was not kept.
func TestAKilledProcessHasKeptEveryAnswerThatItCharged(t *testing.T) {
	for _, answer := range []string{good, silence} {
		b := newBench(t)
		kept := 0
		var asking, keeping *journaltest.Disk
		b.answer = func(r *upstream.Request) (*upstream.Response, error) {
			response, err := whole(answer)(r)
			if asking == nil {
				response.Body = io.NopCloser(io.MultiReader(response.Body, readerFunc(func([]byte) (int, error) {
					asking = b.disk.Crash()
					return 0, io.EOF
				})))
			}
			return response, err
		}
		q := internalTo("m")
		q.Keep = func(*infer.Answer) error { return errors.New("killed before") }
		_, _ = b.Complete(t.Context(), q)
		if charged := found(t, asking); len(charged) != 0 {
			t.Errorf("killed while the provider answered: %+v", charged)
		}

		b = newBench(t)
		b.answer = whole(answer)
		q.Keep = func(*infer.Answer) error {
			kept++
			keeping = b.disk.Crash() // and everything that this process does from here on is lost
			return nil
		}
		_, _ = b.Complete(t.Context(), q)
		if charged := found(t, keeping); kept != 1 || len(charged) != 0 {
			t.Errorf("killed when the answer was kept: %d, %+v", kept, charged)
		}

		b = newBench(t)
		b.answer = whole(answer)
		q.Keep = func(*infer.Answer) error { kept++; return nil }
		a, err := b.complete(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if charged := found(t, b.disk.Crash()); kept != 2 || len(charged) != 1 || charged[0].Kind != journal.Settled || charged[0].Charged != a.Cost {
			t.Errorf("killed after all: %+v", charged)
		}
	}
}

// Many ask at once: some are refused, broken off, cancelled or not kept, and the disk fails now and then. Afterwards
// what was kept is what was charged, each once and at its cost, and the wallet and the journal agree.
func TestWhatWasKeptIsWhatWasChargedWhateverHappens(t *testing.T) {
	var mu sync.Mutex
	calls := 0
	b := wired(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		mu.Lock()
		calls++
		turn := calls
		mu.Unlock()
		switch turn % 7 {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			w.Header().Set("Content-Length", "999")
			_, _ = io.WriteString(w, good)
		case 2, 3:
			_, _ = io.WriteString(w, silence)
		default:
			_, _ = io.WriteString(w, strings.Replace(good, `"completion_tokens":5`, fmt.Sprintf(`"completion_tokens":%d`, turn%50), 1))
		}
	})
	b.funds.Credit(home, 100*money.Dollar/1000) // enough for some of them at once, and not for all
	writes := 0
	b.disk.Fail = func(_ string, size int) (int, error) {
		if writes++; writes%5 == 0 {
			return 0, journaltest.ErrDisk
		}
		return size, nil
	}
	kept := map[string]infer.Answer{}
	ended := make(chan struct{})
	var collecting, asking sync.WaitGroup
	collecting.Go(func() {
		for {
			_ = b.journal.Sync()
			b.Till.Collect()
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	const workers, each = 8, 40
	for worker := range workers {
		asking.Go(func() {
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				q := internalTo("m")
				q.Keep = func(a *infer.Answer) error {
					switch (worker + i) % 5 {
					case 0:
						return errors.New("not kept")
					case 1:
						defer cancel()
					}
					mu.Lock()
					defer mu.Unlock()
					kept[a.RequestID] = *a
					return nil
				}
				if (worker+i)%6 == 0 {
					time.AfterFunc(time.Duration(i%4)*200*time.Microsecond, cancel)
				}
				a, err := b.Complete(ctx, q)
				cancel()
				mu.Lock()
				if err == nil && kept[a.RequestID].Cost != a.Cost {
					t.Errorf("%+v was not kept", a)
				}
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	close(ended)
	collecting.Wait()
	b.disk.Fail = nil
	if err := b.journal.Sync(); err != nil {
		t.Fatal(err)
	}
	if owed := b.Till.Collect(); owed != 0 {
		t.Fatalf("%d are owed", owed)
	}
	var charged money.Nano
	for _, e := range b.entries() {
		switch a, ok := kept[e.Request]; {
		case e.Kind == journal.Probe:
		case !ok || e.Kind != journal.Settled || e.Cost != a.Cost || e.Charged != a.Cost || e.Usage != a.Usage || e.Key != "cal_1":
			t.Errorf("%+v, kept %+v", e, a)
		default:
			charged += e.Charged
			delete(kept, e.Request)
		}
	}
	if m := b.funds.Balance(home); len(kept) != 0 || m.Spent != charged || m.Held != 0 || charged == 0 {
		t.Errorf("%d were kept and not charged; $%s charged, %+v", len(kept), charged, m)
	}
	if used := b.Bounds.Buffered.Used(); used != 0 || b.Running() != 0 {
		t.Errorf("%d bytes held, %d running", used, b.Running())
	}
}
