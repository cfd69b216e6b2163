package dataset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/text/sketch"
)

// sides are a curated set with its lines, each with the side that it is on.
type sides struct {
	*curated
	lines []string
	side  map[string]bool
}

func curateAll(t testing.TB, logs inMemory, percent float64) sides {
	t.Helper()
	made := sides{side: map[string]bool{}}
	var err error
	made.curated, err = curate(t.Context(), logs, percent, func(_ Key, line []byte) error {
		made.lines = append(made.lines, string(line))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(made.held) != len(made.lines) {
		t.Fatalf("%d examples, %d of them have a side", len(made.lines), len(made.held))
	}
	for i, line := range made.lines {
		if _, twice := made.side[line]; twice {
			t.Fatalf("twice: %s", line)
		}
		made.side[line] = made.held[i]
	}
	return made
}

// shingles are the runs of two words of a text.
func shingles(text string) map[string]bool {
	all, words := map[string]bool{}, strings.Fields(text)
	for i := 1; i < len(words); i++ {
		all[words[i-1]+" "+words[i]] = true
	}
	return all
}

// jaccard is how much of their shingles two texts share.
func jaccard(one, other map[string]bool) float64 {
	both := 0
	for s := range one {
		if other[s] {
			both++
		}
	}
	if len(one)+len(other) == both {
		return 1
	}
	return float64(both) / float64(len(one)+len(other)-both)
}

// straddles looks at every pair for what is on both sides, by what the test knows of the exchanges and by nothing of
// the code's.
func straddles(all []*chat, made sides) error {
	examples := map[int]bool{} // by exchange: held out
	for i, e := range made.examples {
		examples[e.row] = made.held[i]
	}
	sketches, shingled := map[int]sketch.Sketch{}, map[int]map[string]bool{}
	for i := range examples {
		sketches[i], shingled[i] = sketch.Of(all[i].words()), shingles(all[i].words())
	}
	in := func(c *chat) (sides []bool) { // the sides on which an exchange is, whole
		for i, held := range examples {
			if c.within(all[i]) {
				sides = append(sides, held)
			}
		}
		return sides
	}
	for i, a := range examples {
		for j, b := range examples {
			if a || !b { // one of each side, once
				continue
			}
			switch one, other := all[i], all[j]; {
			case one.talk == other.talk:
				return fmt.Errorf("two turns of conversation %d", one.talk)
			case sketches[i].Similarity(sketches[j]) >= sketch.Near:
				return fmt.Errorf("%q and %q", one.words(), other.words())
			case jaccard(shingled[i], shingled[j]) > 0.87: // far enough that the sketch cannot err
				return fmt.Errorf("%q and %q, by the words", one.words(), other.words())
			}
		}
	}
	if question := sharedQuestion(all, examples); question != "" {
		return fmt.Errorf("the question %s", question)
	}
	traces := map[string]bool{}
	for _, c := range all {
		if c.trace == "" || c.spoiled() {
			continue
		}
		for _, held := range in(c) {
			if first, ok := traces[c.trace]; ok && first != held {
				return fmt.Errorf("two exchanges of %s", c.trace)
			}
			traces[c.trace] = held
		}
	}
	return nil
}

// sharedQuestion returns a question that some exchange was asked and that examples of both sides answer.
func sharedQuestion(all []*chat, examples map[int]bool) string {
	asked := map[string]bool{}
	for _, c := range all {
		asked[fmt.Sprint(c.messages)] = true
	}
	sides := map[string]bool{}
	for i, held := range examples {
		for _, question := range all[i].questions() {
			if first, known := sides[question]; known && first != held && asked[question] {
				return question
			}
			sides[question] = held
		}
	}
	return ""
}

func TestSerialNothingAlikeIsOnBothSidesOfASplit(t *testing.T) {
	sets := 1000 / raceFactor
	if testing.Short() {
		sets = 100
	}
	examples, held, split := 0, 0, 0
	for seed := range sets {
		w := newGenerator(uint64(seed))
		all := w.logs(true)
		percent := []float64{0.01, 5, 10, 25, 50}[w.IntN(5)]
		made := curateAll(t, exchangesOf(t, all), percent)
		if err := straddles(all, made); err != nil {
			t.Fatalf("set %d: on both sides: %v", seed, err)
		}
		groups := map[int]bool{}
		out := 0
		for i, e := range made.examples {
			groups[made.together.of(e.row)] = true
			if made.held[i] {
				out++
			}
		}
		if len(groups) > 1 && (out == 0 || out == len(made.held)) || len(groups) <= 1 && out > 0 {
			t.Fatalf("set %d: %d groups, %d of %d held out", seed, len(groups), out, len(made.held))
		}
		if examples, held = examples+len(made.held), held+out; out > 0 {
			split++
		}
	}
	if split < sets*9/10 {
		t.Errorf("only %d of %d sets could be split: the test shows little", split, sets)
	}
	t.Logf("%d sets, %d examples, %d held out, %d sets split", sets, examples, held, split)
}

func TestWhatIsScannedIsKeptDroppedOrFolded(t *testing.T) {
	var total Curation
	for seed := range 300 / raceFactor {
		w := newGenerator(uint64(seed))
		all := w.logs(true)
		made := curateAll(t, exchangesOf(t, all), float64(seed%2))
		c, d := made.Curation, made.Dropped
		if c.Scanned != len(all) || c.Kept != len(made.lines) || c.Scanned != c.Kept+d.Errored+d.Truncated+d.Empty+d.Duplicate+c.FoldedTurns {
			t.Fatalf("set %d of %d: %+v", seed, len(all), c)
		}
		var want Dropped
		firsts := map[string]*chat{}
		for _, x := range all {
			switch whole := fmt.Sprint(x.messages, x.reply); {
			case x.finish == "content_filter":
				want.Errored++
			case x.finish == "length":
				want.Truncated++
			case strings.TrimSpace(x.reply) == "":
				want.Empty++
			case firsts[whole] != nil:
				want.Duplicate++
			default:
				firsts[whole] = x
			}
		}
		if want != d {
			t.Fatalf("set %d: dropped %+v, want %+v", seed, d, want)
		}
		turns := 0
		for _, x := range firsts {
			inner := false
			for _, other := range firsts {
				inner = inner || x != other && x.within(other)
			}
			if inner {
				turns++
			}
		}
		if turns != c.FoldedTurns || (turns > 0) != (c.FoldedConversations > 0) {
			t.Fatalf("set %d: %d turns are folded, want %d; %d conversations", seed, c.FoldedTurns, turns, c.FoldedConversations)
		}
		total.Scanned, total.Kept, total.FoldedTurns = total.Scanned+c.Scanned, total.Kept+c.Kept, total.FoldedTurns+c.FoldedTurns
		total.Dropped.Duplicate += d.Duplicate
	}
	t.Logf("%+v", total)
}

func TestSerialTheSameExamplesSplitTheSameWayInAnyOrder(t *testing.T) {
	for seed := range 100 / raceFactor {
		w := newGenerator(uint64(seed))
		all := w.logs(false)
		first := curateAll(t, exchangesOf(t, all), 20)
		for range 3 {
			w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			if again := curateAll(t, exchangesOf(t, all), 20); !maps.Equal(first.side, again.side) {
				t.Fatalf("set %d splits otherwise in another order", seed)
			}
		}
		if !slices.ContainsFunc(first.held, func(out bool) bool { return out }) && len(first.held) > 20 {
			t.Fatalf("set %d of %d examples does not split", seed, len(first.held))
		}
	}
}

// The number of a set's examples that are held out is near what was asked for, where the examples are many and apart.
func TestASplitFollowsThePercent(t *testing.T) {
	const n = 20_000
	examples := make([]example, n)
	r := rand.New(rand.NewPCG(3, 3))
	for i := range examples {
		examples[i].row = i
		for at := range examples[i].key {
			examples[i].key[at] = byte(r.Uint32())
		}
	}
	for _, percent := range []float64{0.5, 10, 33.3, 50} {
		held := 0
		for _, out := range split(examples, newSets(n), percent) {
			if out {
				held++
			}
		}
		if share := 100 * float64(held) / n; share < percent*0.85 || share > percent*1.15 {
			t.Errorf("%v%% asked for, %v%% held out", percent, share)
		}
	}
}

// Examples in a prompt are a beginning that is shared too, and tie nothing together. A few exchanges that continue one
// turn are tied, and so are any number that answer one question.
func TestATemplateTiesNothingTogether(t *testing.T) {
	w := newGenerator(1)
	words := func() string { return strings.Join(w.words(12), " ") }
	template := []turn{{"system", "You translate."}, {"user", "one"}, {"assistant", "eins"}}
	ask := func(begin []turn) *chat {
		return &chat{messages: append(slices.Clone(begin), turn{"user", words()}), reply: words(), finish: "stop"}
	}
	groups := func(all []*chat) int {
		made, sets := curateAll(t, exchangesOf(t, all), 20), map[int]bool{}
		for _, e := range made.examples {
			sets[made.together.of(e.row)] = true
		}
		return len(sets)
	}
	var shots []*chat
	for range maxShared + 1 {
		shots = append(shots, ask(template))
	}
	if n := groups(shots); n != len(shots) {
		t.Errorf("%d groups of %d exchanges with the same examples", n, len(shots))
	}
	if n := groups(shots[1:]); n != 1 {
		t.Errorf("%d groups of %d exchanges that continue one turn", n, len(shots)-1)
	}
	for range 50 { // the question after a template, answered again and again
		again := *shots[0]
		again.reply = words()
		shots = append(shots, &again)
	}
	if n := groups(shots); n != maxShared+1 {
		t.Errorf("%d groups, want %d", n, maxShared+1)
	}
	greeted := []*chat{}
	for range maxShared {
		greeted = append(greeted, ask([]turn{{"system", "You help."}, {"assistant", "How can I help?"}}))
	}
	if n := groups(greeted); n != len(greeted) {
		t.Errorf("%d groups of %d exchanges that begin with a greeting", n, len(greeted))
	}
}

// Where the comparisons run out, examples that may be near are taken to be.
func TestAnEndOfComparingLeaksNothing(t *testing.T) {
	for seed := range 100 / raceFactor {
		w := newGenerator(uint64(seed))
		all := w.logs(true)
		made := curateAll(t, exchangesOf(t, all), 20)
		sorted := make([]*example, len(made.examples))
		for i := range made.examples {
			sorted[i] = &made.examples[i]
		}
		for _, most := range []int{0, 1, 10, 100} {
			together := slices.Clone(made.together)
			for i := range together {
				together[i] = int32(i)
			}
			if err := near(t.Context(), sorted, together, most); err != nil {
				t.Fatal(err)
			}
			for _, a := range sorted {
				for _, b := range sorted {
					if a.sketch.Similarity(b.sketch) >= sketch.Near && together.of(a.row) != together.of(b.row) {
						t.Fatalf("set %d, %d comparisons: two that are near are apart", seed, most)
					}
				}
			}
		}
	}
}

// alike are two sketches of which so many rows differ.
func alike(r *rand.Rand, differ int) (a, b sketch.Sketch) {
	for i := range a {
		a[i] = uint16(r.Uint32())
	}
	b = a
	for _, i := range r.Perm(len(a))[:differ] {
		b[i]++
	}
	return a, b
}

// Of a few, every pair that is Near is found: as many rows as may differ cannot reach all of the keys.
func TestSerialNoNearDuplicateOfAFewIsMissed(t *testing.T) {
	if mostUnlike >= shortKeys {
		t.Errorf("%d rows may differ, of %d keys", mostUnlike, shortKeys)
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 3_000 {
		a, b := alike(r, mostUnlike)
		together := newSets(2)
		if err := near(t.Context(), []*example{{row: 0, sketch: a}, {row: 1, sketch: b}}, together, maxCompared); err != nil {
			t.Fatal(err)
		}
		if together.of(0) != together.of(1) {
			t.Fatal("a pair is missed")
		}
	}
}

func TestSerialHardlyANearDuplicateOfManyIsMissed(t *testing.T) {
	const pairs = 10_000
	r := rand.New(rand.NewPCG(6, 6))
	var examples []*example
	for i := range pairs {
		a, b := alike(r, mostUnlike)
		examples = append(examples, &example{row: 2 * i, sketch: a}, &example{row: 2*i + 1, sketch: b})
	}
	together := newSets(2 * pairs)
	if err := near(t.Context(), examples, together, maxCompared); err != nil {
		t.Fatal(err)
	}
	missed := 0
	for i := range pairs {
		if together.of(2*i) != together.of(2*i+1) {
			missed++
		}
	}
	if missed > pairs/1000 {
		t.Errorf("%d of %d pairs are missed", missed, pairs)
	}
	t.Logf("%d of %d pairs are missed", missed, pairs)
}

func TestNearIsWhatTheSimilaritySays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for differ := range len(sketch.Sketch{}) + 1 {
		for range 20 {
			a, b := alike(r, differ)
			if got, want := isNear(&a, &b), a.Similarity(b) >= sketch.Near; got != want {
				t.Fatalf("%d rows differ: %v, want %v", differ, got, want)
			}
		}
	}
}

// BenchmarkNear is the most examples that a dataset has, by how alike they are: texts that share a template of so many
// words.
func BenchmarkNear(b *testing.B) {
	const n, words = 100_000, 100
	for _, shared := range []int{0, 20, 50} {
		b.Run(fmt.Sprintf("%d shared", shared), func(b *testing.B) {
			r := rand.New(rand.NewPCG(9, 9))
			var template []string
			for i := range shared {
				template = append(template, fmt.Sprintf("t%d", i))
			}
			examples := make([]*example, n)
			for i := range examples {
				text := []byte(strings.Join(template, " "))
				for range words - shared {
					text = fmt.Appendf(text, " %x", r.Uint64())
				}
				examples[i] = &example{row: i, sketch: sketch.Of(string(text))}
			}
			for b.Loop() {
				together := newSets(n)
				if err := near(b.Context(), examples, together, maxCompared); err != nil {
					b.Fatal(err)
				}
				groups := map[int]bool{}
				for i := range n {
					groups[together.of(i)] = true
				}
				b.ReportMetric(float64(len(groups)), "groups")
			}
		})
	}
}
