package servingtest

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"sovereign/internal/domain/serving"
)

func becomesReady(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 1))
	r := p.ready(t, "serves", 1)[0]
	if !strings.HasPrefix(r.BaseURL, "http") {
		t.Errorf("its address is %q", r.BaseURL)
	}
	d := p.find(t, "serves")
	if d.Spec != p.spec(Serves, 1) {
		t.Errorf("the spec is %+v", d.Spec)
	}
	p.Check(t, p.list(t))
}

func appliesAgain(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 2))
	p.apply(t, p.spec(Serves, 2))
	before := p.ready(t, "serves", 2)
	p.apply(t, p.spec(Serves, 2))
	same(t, before, p.ready(t, "serves", 2))
	if ended := in(p.find(t, "serves"), serving.Ended); len(ended) > 0 {
		t.Errorf("replicas have ended: %+v", ended)
	}
}

func scales(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 1))
	p.ready(t, "serves", 1)
	p.apply(t, p.spec(Serves, 3))
	p.ready(t, "serves", 3)
	p.apply(t, p.spec(Serves, 0))
	p.ready(t, "serves", 0)
	for _, r := range p.ended(t, "serves", 3) {
		if !r.Asked || r.EndedAt < r.StartedAt {
			t.Errorf("it was told to end: %+v", r)
		}
	}
	p.apply(t, p.spec(Serves, 1)) // from zero
	p.ready(t, "serves", 1)
}

func keepsTheOldest(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 1))
	first := p.ready(t, "serves", 1)
	p.apply(t, p.spec(Serves, 2))
	p.ready(t, "serves", 2)
	p.apply(t, p.spec(Serves, 1))
	same(t, first, p.ready(t, "serves", 1))
}

func replaces(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 1))
	before := p.ready(t, "serves", 1)[0]
	changed := p.spec(Serves, 1)
	changed.Model = "dedicated/other"
	p.apply(t, changed)
	old := p.ended(t, "serves", 1)[0]
	if old.ID != before.ID || !old.Asked {
		t.Errorf("the replica of the old spec: %+v", old)
	}
	if after := p.ready(t, "serves", 1)[0]; after.ID == before.ID {
		t.Error("the replica is the old one")
	}
	if got := p.find(t, "serves").Spec.Model; got != "dedicated/other" {
		t.Errorf("the spec has the model %s", got)
	}
}

func removes(t *testing.T, p *place) {
	for range 2 {
		if err := p.backend.Remove(t.Context(), "serves"); err != nil {
			t.Fatal("of none:", err)
		}
	}
	p.apply(t, p.spec(Serves, 2))
	p.ready(t, "serves", 2)
	for range 2 {
		if err := p.backend.Remove(t.Context(), "serves"); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range p.ended(t, "serves", 2) {
		if !r.Asked {
			t.Errorf("it was told to end: %+v", r)
		}
	}
	p.remove(t, "serves")
	p.apply(t, p.spec(Serves, 1)) // the name is free again
	p.ready(t, "serves", 1)
}

func replacesKilled(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 2))
	before := p.ready(t, "serves", 2)
	p.Kill(t, "serves", before[0])
	dead := p.ended(t, "serves", 1)[0]
	if dead.ID != before[0].ID || dead.Asked || dead.Reason == "" || dead.EndedAt < dead.ReadyAt || dead.ReadyAt == 0 {
		t.Errorf("the killed one: %+v", dead)
	}
	after := ids(p.ready(t, "serves", 2))
	if strings.Contains(after, before[0].ID) || !strings.Contains(after, before[1].ID) {
		t.Errorf("before %s, after %s", ids(before), after)
	}
}

func exits(t *testing.T, p *place) {
	p.apply(t, p.spec(Exits, 1))
	for _, r := range p.ended(t, "exits", 2) { // it is tried again
		if r.ReadyAt != 0 || r.Asked || !strings.Contains(r.Reason, "3") {
			t.Errorf("it exited with 3: %+v", r)
		}
		clean(t, r)
		if !strings.Contains(strings.Join(r.Lines, "\n"), LastWords) {
			t.Errorf("its last words are %q", r.Lines)
		}
	}
}

// clean fails unless what an engine wrote is fit for people.
func clean(t *testing.T, r serving.Replica) {
	t.Helper()
	if len(r.Lines) > 100 {
		t.Errorf("%d lines", len(r.Lines))
	}
	for _, line := range r.Lines {
		if strings.ContainsFunc(line, unicode.IsControl) || strings.Contains(line, Credential) || len(line) > 4096 {
			t.Errorf("a line of %d bytes: %q", len(line), line[:min(len(line), 500)])
		}
	}
}

func neverHealthy(t *testing.T, p *place) {
	p.apply(t, p.spec(NeverHealthy, 1))
	r := p.ended(t, "never-healthy", 1)[0]
	if r.ReadyAt != 0 || r.Asked || r.Reason == "" {
		t.Errorf("it did not become healthy: %+v", r)
	}
}

func stubborn(t *testing.T, p *place) {
	p.apply(t, p.spec(Stubborn, 1))
	p.ready(t, "stubborn", 1)
	p.apply(t, p.spec(Stubborn, 0))
	if r := p.ended(t, "stubborn", 1)[0]; !r.Asked {
		t.Errorf("it was told to end: %+v", r)
	}
}

func floods(t *testing.T, p *place) {
	p.apply(t, p.spec(Floods, 1))
	r := p.ended(t, "floods", 1)[0]
	clean(t, r)
	if !strings.Contains(strings.Join(r.Lines, "\n"), LastWords) {
		t.Errorf("its last words are %d lines", len(r.Lines))
	}
}

func restarts(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 2))
	before := p.ready(t, "serves", 2)
	for range 3 {
		p.reopen(t)
		same(t, before, p.ready(t, "serves", 2))
	}
	if d := p.find(t, "serves"); d.Spec != p.spec(Serves, 2) {
		t.Errorf("the spec is %+v", d.Spec)
	}
	p.apply(t, p.spec(Serves, 2))
	same(t, before, p.ready(t, "serves", 2))
	p.Kill(t, "serves", before[0]) // which is not this server's child
	p.ended(t, "serves", 1)
	p.ready(t, "serves", 2)
}

// A server that ends between Apply or Remove and their effect goes on where it was.
func restartsRemoving(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 3))
	p.reopen(t)
	p.ready(t, "serves", 3)
	p.apply(t, p.spec(Stubborn, 1))
	p.ready(t, "stubborn", 1)
	for _, name := range []string{"serves", "stubborn"} {
		if err := p.backend.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	p.reopen(t)
	p.ended(t, "serves", 3)
	p.ended(t, "stubborn", 1)
}

func diesMeanwhile(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 2))
	before := p.ready(t, "serves", 2)
	p.backend.Close()
	p.Kill(t, "serves", before[0])
	p.reopen(t)
	dead := p.ended(t, "serves", 1)[0]
	if dead.ID != before[0].ID || dead.Asked || dead.StartedAt != before[0].StartedAt ||
		dead.ReadyAt != before[0].ReadyAt {
		t.Errorf("before %+v\ndead %+v", before[0], dead)
	}
	p.ready(t, "serves", 2)
}

func forgets(t *testing.T, p *place) {
	p.apply(t, p.spec(Serves, 1))
	p.ready(t, "serves", 1)
	p.apply(t, p.spec(Serves, 0))
	gone := p.ended(t, "serves", 1)[0]
	p.reopen(t) // what has ended is listed until it is forgotten
	if got := ids(p.find(t, "serves").Replicas); got != gone.ID {
		t.Fatalf("after a restart: %q", got)
	}
	for range 2 {
		if err := p.backend.Forget(t.Context(), "serves", gone.ID); err != nil {
			t.Fatal(err)
		}
	}
	if d := p.find(t, "serves"); len(d.Replicas) > 0 || d.Spec.Name == "" {
		t.Errorf("after Forget: %s", show(d))
	}
	p.apply(t, p.spec(Serves, 1))
	runs := p.ready(t, "serves", 1)[0]
	if err := p.backend.Forget(t.Context(), "serves", runs.ID); err == nil {
		t.Error("a replica that runs is forgotten")
	}
	same(t, []serving.Replica{runs}, p.ready(t, "serves", 1))
}

func many(t *testing.T, p *place) {
	const n = 4
	name := func(i int) string { return fmt.Sprintf("many-%d", i) }
	for i := range n {
		s := p.spec(Serves, 1)
		s.Name = name(i)
		p.apply(t, s)
	}
	before := map[int][]serving.Replica{}
	urls := map[string]bool{}
	for i := range n {
		before[i] = p.ready(t, name(i), 1)
		urls[before[i][0].BaseURL] = true
	}
	if len(urls) != n {
		t.Errorf("addresses: %v", urls)
	}
	p.remove(t, name(0))
	for i := 1; i < n; i++ {
		same(t, before[i], p.ready(t, name(i), 1))
	}
}
