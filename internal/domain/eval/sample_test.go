package eval

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/text/fold"
)

// Whatever the pool: a sample has no question and no conversation twice, is as large as it can be, has one of every
// segment while there is room, gives no segment a share that differs from its proportion by more than one beyond that,
// and is the same for the same seed.
func TestASampleHasNoRepeatsAndEverySegmentInItsProportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := func(name string, most int) fold.Key {
			return fold.Key{byte(rapid.IntRange(1, most).Draw(t, name))}
		}
		pool := make([]mark, rapid.IntRange(0, 60).Draw(t, "pool"))
		for i := range pool {
			pool[i] = mark{
				segment:  fmt.Sprint("s", rapid.IntRange(0, 5).Draw(t, "segment")),
				question: key("question", 80), conversation: key("conversation", 80),
				readable: rapid.IntRange(0, 9).Draw(t, "readable") > 0,
			}
		}
		size, seed := rapid.IntRange(1, 40).Draw(t, "size"), newSeed(nil, rapid.Int64().Draw(t, "seed"))
		drawn, leftOut := choose(pool, size, seed)
		if again, _ := choose(pool, size, seed); !slices.Equal(drawn, again) {
			t.Fatalf("the same seed draws %v and %v", drawn, again)
		}
		questions, conversations, got := map[fold.Key]bool{}, map[fold.Key]bool{}, map[string]int{}
		for _, i := range drawn {
			m := pool[i]
			if !m.readable || questions[m.question] || conversations[m.conversation] {
				t.Fatalf("%d is unreadable or a repeat in %v", i, drawn)
			}
			questions[m.question], conversations[m.conversation] = true, true
			got[m.segment]++
		}
		distinct := len(pool) - leftOut
		if len(drawn) != min(size, distinct) {
			t.Fatalf("%d of %d were drawn, and %d asked for", len(drawn), distinct, size)
		}
		whole, _ := choose(pool, len(pool)+1, seed)
		sizes := map[string]int{}
		for _, i := range whole {
			sizes[pool[i].segment]++
		}
		if len(got) != min(len(sizes), size) {
			t.Fatalf("%d of %d segments in a sample of %d", len(got), len(sizes), size)
		}
		for segment, n := range sizes {
			fair := float64(n) * float64(len(drawn)) / float64(max(distinct, 1))
			if off := float64(got[segment]) - fair; len(sizes) <= size && (off > float64(len(sizes)) || off < -float64(len(sizes))) {
				t.Fatalf("%d of segment %s, which has %d of %d, in a sample of %d", got[segment], segment, n, distinct, size)
			}
		}
	})
}

func TestSharesAddUpAndAreProportional(t *testing.T) {
	for _, c := range []struct {
		sizes map[string]int
		size  int
		want  map[string]int
	}{
		{map[string]int{"a": 90, "b": 9, "c": 1}, 10, map[string]int{"a": 7, "b": 2, "c": 1}},
		{map[string]int{"a": 50, "b": 50}, 10, map[string]int{"a": 5, "b": 5}},
		{map[string]int{"a": 5, "b": 3, "c": 1}, 2, map[string]int{"a": 1, "b": 1}},
		{map[string]int{"a": 2, "b": 1}, 2, map[string]int{"a": 1, "b": 1}},
	} {
		if got := shares(c.sizes, c.size); !maps.Equal(got, c.want) {
			t.Errorf("%d of %v: %v, want %v", c.size, c.sizes, got, c.want)
		}
	}
}

// Turns of one conversation are related by a turn that was logged. Examples in a prompt relate nothing.
func TestTurnsOfAConversationAreRelatedAndExamplesInAPromptAreNot(t *testing.T) {
	chain := func(messages, response string) fold.Chain {
		c, err := fold.Keys([]byte(messages), []byte(response))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const shots = `{"role":"user","content":"2+2"},{"role":"assistant","content":"4"},`
	first := chain(`[`+shots+`{"role":"user","content":"hi"}]`, `{"role":"assistant","content":"hello"}`)
	second := chain(`[`+shots+`{"role":"user","content":"hi"},{"role":"assistant","content":"hello"},{"role":"user","content":"and?"}]`, `{"role":"assistant","content":"fine"}`)
	other := chain(`[`+shots+`{"role":"user","content":"bye"}]`, `{"role":"assistant","content":"so long"}`)
	own := map[fold.Key]bool{first.Own: true, second.Own: true, other.Own: true}
	a, b, c := newMark("", first, own), newMark("", second, own), newMark("", other, own)
	if a.conversation != b.conversation || a.conversation == c.conversation {
		t.Errorf("%v %v %v", a, b, c)
	}
	if drawn, leftOut := choose([]mark{a, b, c, newMark("", fold.Chain{}, own)}, 10, seed{}); len(drawn) != 2 || leftOut != 2 {
		t.Errorf("%v, and %d are left out", drawn, leftOut)
	}
}

// Whoever searches for a seed outside of the server finds one for another secret, which draws something else here.
func TestASeedDrawsAnotherSampleUnderAnotherSecret(t *testing.T) {
	pool := make([]mark, 200)
	for i := range pool {
		pool[i] = mark{question: fold.Key{byte(i)}, conversation: fold.Key{byte(i)}, readable: true}
	}
	one, _ := choose(pool, 20, newSeed([]byte("one"), 7))
	same, _ := choose(pool, 20, newSeed([]byte("one"), 7))
	other, _ := choose(pool, 20, newSeed([]byte("other"), 7))
	next, _ := choose(pool, 20, newSeed([]byte("one"), 8))
	if !slices.Equal(one, same) || slices.Equal(one, other) || slices.Equal(one, next) {
		t.Errorf("%v, %v, %v, %v", one, same, other, next)
	}
}
