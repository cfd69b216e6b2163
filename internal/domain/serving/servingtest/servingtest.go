// Package servingtest has the tests that every backend of serving passes.
package servingtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/domain/serving"
)

// A Behaviour is what an engine of the suite does. A fixture makes it so.
type Behaviour string

// The behaviours.
const (
	Serves       Behaviour = "serves"        // becomes healthy, and runs until it is told to end
	Exits        Behaviour = "exits"         // writes a line with LastWords, and exits at once with status 3
	NeverHealthy Behaviour = "never-healthy" // runs, and never becomes healthy. Its start may take a second at most
	Stubborn     Behaviour = "stubborn"      // as Serves, and does not end when it is asked to
	// writes 10 MB without a line break, garbage, and LastWords; exits with status 3
	Floods Behaviour = "floods"
)

// LastWords is what engines that exit have written last, with a credential behind it that nobody may be shown.
const (
	LastWords  = "cannot load the weights"
	Credential = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
)

// A Fixture is a place for engines: a folder of a machine, or a namespace of a cluster. It is made anew for each test.
type Fixture interface {
	// Open returns a backend for the place: of a server that starts, with what earlier ones have left there. The suite
	// closes it.
	Open(t *testing.T) serving.Backend
	// Engine returns the name of a template whose engine behaves so.
	Engine(b Behaviour) string
	// Kill ends an engine from outside, without telling the backend.
	Kill(t *testing.T, name string, r serving.Replica)
	// Check fails the test if something of the engines is left that the deployments do not list: processes, files,
	// objects.
	Check(t *testing.T, listed []serving.Deployment)
}

// limit is how long a test waits for something to happen: it is no promise about how fast a backend is.
const limit = 5 * time.Minute

// Run runs the suite.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *place)
	}{
		{"AppliedSpecBecomesReady", becomesReady},
		{"ApplyAgainChangesNothing", appliesAgain},
		{"ScalesUpAndDown", scales},
		{"OfTooManyTheOldestReadyStays", keepsTheOldest},
		{"ChangedSpecReplaces", replaces},
		{"RemoveEndsAllAndIsIdempotent", removes},
		{"KilledEngineIsReplaced", replacesKilled},
		{"EngineThatExitsIsShownWithItsLastWords", exits},
		{"EngineThatIsNeverHealthyIsEnded", neverHealthy},
		{"EngineThatDoesNotEndIsKilled", stubborn},
		{"FloodOfOutputIsBounded", floods},
		{"RestartedServerFindsItsReplicas", restarts},
		{"RestartedServerGoesOnRemoving", restartsRemoving},
		{"EngineThatDiedMeanwhileIsSeen", diesMeanwhile},
		{"ForgottenReplicaIsGone", forgets},
		{"ManyDeploymentsDoNotDisturbEachOther", many},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := &place{Fixture: open(t)}
			p.reopen(t)
			c.test(t, p)
			p.clear(t)
		})
	}
}

// A place is a fixture with its open backend.
type place struct {
	Fixture
	backend serving.Backend
}

// reopen ends the server, if there is one, and starts another.
func (p *place) reopen(t *testing.T) {
	t.Helper()
	if p.backend != nil {
		p.backend.Close()
	}
	opened := p.Open(t)
	p.backend = opened
	t.Cleanup(opened.Close)
}

func (p *place) spec(b Behaviour, replicas int) serving.Spec {
	return serving.Spec{
		Name: string(b), Engine: p.Engine(b), BaseModel: "tiny/bigram", Model: "dedicated/key", GPUType: serving.CPU,
		GPUCount: 1, Replicas: replicas,
	}
}

func (p *place) apply(t *testing.T, s serving.Spec) {
	t.Helper()
	if err := p.backend.Apply(t.Context(), s); err != nil {
		t.Fatalf("apply %s: %v", s.Name, err)
	}
}

func (p *place) list(t *testing.T) []serving.Deployment {
	t.Helper()
	all, err := p.backend.List(t.Context())
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return all
}

// find returns the deployment of a name, empty if there is none.
func (p *place) find(t *testing.T, name string) serving.Deployment {
	t.Helper()
	for _, d := range p.list(t) {
		if d.Spec.Name == name {
			return d
		}
	}
	return serving.Deployment{}
}

// await waits until a deployment is as wanted. It looks when Changed says so: a backend that does not signal fails.
func (p *place) await(t *testing.T, name, what string, wanted func(serving.Deployment) bool) serving.Deployment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		d := p.find(t, name)
		if wanted(d) {
			return d
		}
		select {
		case <-p.backend.Changed():
		case <-ctx.Done():
			if wanted(p.find(t, name)) {
				t.Fatalf("%s: %s, and Changed did not say so", name, what)
			}
			t.Fatalf("%s: waited in vain: %s\n%s", name, what, show(d))
		}
	}
}

// ready waits until exactly so many replicas run, and all of them are ready.
func (p *place) ready(t *testing.T, name string, n int) []serving.Replica {
	t.Helper()
	d := p.await(t, name, fmt.Sprintf("%d replicas are ready", n), func(d serving.Deployment) bool {
		return len(in(d, serving.Ready)) == n && len(in(d, serving.Starting)) == 0
	})
	for _, r := range in(d, serving.Ready) {
		if r.ID == "" || r.BaseURL == "" || r.StartedAt == 0 || r.ReadyAt < r.StartedAt || r.EndedAt != 0 || r.Asked {
			t.Errorf("a replica that is ready: %+v", r)
		}
	}
	return in(d, serving.Ready)
}

// ended waits until at least so many replicas have ended.
func (p *place) ended(t *testing.T, name string, n int) []serving.Replica {
	t.Helper()
	d := p.await(t, name, fmt.Sprintf("%d replicas have ended", n), func(d serving.Deployment) bool {
		return len(in(d, serving.Ended)) >= n
	})
	return in(d, serving.Ended)
}

// clear removes and forgets everything, and checks that nothing is left.
func (p *place) clear(t *testing.T) {
	t.Helper()
	for _, d := range p.list(t) {
		p.remove(t, d.Spec.Name)
	}
	p.Check(t, nil)
}

// remove removes a deployment, waits for the ends of its replicas, and forgets them.
func (p *place) remove(t *testing.T, name string) {
	t.Helper()
	if err := p.backend.Remove(t.Context(), name); err != nil {
		t.Fatalf("remove %s: %v", name, err)
	}
	p.await(t, name, "it is gone", func(d serving.Deployment) bool {
		for _, r := range in(d, serving.Ended) {
			if err := p.backend.Forget(t.Context(), name, r.ID); err != nil {
				t.Fatalf("forget %s: %v", r.ID, err)
			}
		}
		return p.find(t, name).Spec.Name == ""
	})
}

// in returns the replicas of a phase.
func in(d serving.Deployment, phase serving.Phase) []serving.Replica {
	return slices.DeleteFunc(slices.Clone(d.Replicas), func(r serving.Replica) bool { return r.Phase != phase })
}

func ids(all []serving.Replica) string {
	var found []string
	for _, r := range all {
		found = append(found, r.ID)
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// same fails unless two lists have the same replicas, with the same times.
func same(t *testing.T, before, after []serving.Replica) {
	t.Helper()
	if ids(before) != ids(after) {
		t.Fatalf("other replicas: before %s, after %s", ids(before), ids(after))
	}
	for _, b := range before {
		for _, a := range after {
			if a.ID == b.ID && (a.StartedAt != b.StartedAt || a.BaseURL != b.BaseURL || a.ReadyAt != b.ReadyAt) {
				t.Errorf("before %+v\n after %+v", b, a)
			}
		}
	}
}

func show(d serving.Deployment) string {
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%+v, problem %q", d.Spec, d.Problem)
	for _, r := range d.Replicas {
		lines := r.Lines
		r.Lines = nil
		_, _ = fmt.Fprintf(&text, "\n  %+v", r)
		for _, line := range lines[max(0, len(lines)-5):] {
			_, _ = fmt.Fprintf(&text, "\n    %.200s", line)
		}
	}
	return text.String()
}
