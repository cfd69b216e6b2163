package segment_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/text/segment"
)

// place finds a prompt's family, or begins one.
func place(f *segment.Families, system string) string {
	p := segment.Of(system)
	family, ok := f.Find(p)
	if !ok {
		family = segment.Name(system)
		f.Add(family, p)
	}
	return family
}

func TestFamiliesAreThoseOfTheTemplates(t *testing.T) {
	c := readCorpus(t)
	var right, merged, split float64
	for seed := range uint64(4) {
		all := c.prompts(rand.New(rand.NewPCG(seed, 3)), 10)
		var f segment.Families
		got := make([]string, len(all))
		for i, p := range all {
			got[i] = place(&f, p.text)
		}
		for i := range all {
			for j := range i {
				switch same := all[i].family == all[j].family; {
				case same && got[i] == got[j]:
					right++
				case same:
					split++
				case got[i] == got[j]:
					merged++
				}
			}
		}
	}
	precision, recall := right/(right+merged), right/(right+split)
	t.Logf("of %d templates, precision %.4f, recall %.4f of pairs", len(c.names), precision, recall)
	if len(c.names) < 40 || precision < 0.99 || recall < 0.91 {
		t.Errorf("of %d templates, precision %.4f, recall %.4f of pairs", len(c.names), precision, recall)
	}
}

func TestTasksThatShareBoilerplateStayApart(t *testing.T) {
	c := readCorpus(t)
	r := rand.New(rand.NewPCG(5, 5))
	for _, group := range []string{"boiler-", "house-", "policy-", "short-"} {
		var f segment.Families
		names := map[string]string{}
		for i, name := range c.names {
			if !strings.HasPrefix(name, group) {
				continue
			}
			family := place(&f, fill(r, c.templates[i]))
			if other, taken := names[family]; taken {
				t.Errorf("%s is of the family of %s", name, other)
			}
			names[family] = name
		}
		if len(names) < 3 {
			t.Errorf("%d families of %s", len(names), group)
		}
	}
}

func TestDocumentsDoNotHideAPrompt(t *testing.T) {
	const instructions = `You answer questions of employees from the internal handbook. Use only the passages that you are given. After every
sentence name the passage it comes from in square brackets. When the passages do not hold the answer, say so and suggest whom to ask. Do not
use what you know from elsewhere, even if you are sure of it. Answer in the language of the question, in a neutral tone, in at most three short
paragraphs.`
	r := rand.New(rand.NewPCG(6, 6))
	for name, around := range map[string]func(docs string) string{
		"after":  func(docs string) string { return instructions + "\n\nPassages:\n" + docs },
		"before": func(docs string) string { return "Passages:\n" + docs + "\n\n" + instructions },
		"amid":   func(docs string) string { return instructions + "\n\n" + docs + "\n\nThink before you answer." },
	} {
		var f segment.Families
		families := map[string]bool{}
		for _, words := range []int{2000, 40, 300, 5000} {
			families[place(&f, around(prose(r, words)))] = true
		}
		if len(families) != 1 {
			t.Errorf("documents %s the instructions make %d families", name, len(families))
		}
	}
}

// separate is templates whose prompts are far more like each other than like those of the others.
var separate = []string{"support", "code-review", "judge", "tutor", "medical", "voice", "german", "fraud", "chinese"}

func TestTheOrderOfPromptsDoesNotChangeWhichFallTogether(t *testing.T) {
	c := readCorpus(t)
	r := rand.New(rand.NewPCG(4, 4))
	var all []prompt
	for i, name := range c.names {
		if slices.Contains(separate, name) {
			for range 4 {
				all = append(all, prompt{name, fill(r, c.templates[i])})
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var f segment.Families
		names := map[string]string{}
		for _, p := range rapid.Permutation(all).Draw(t, "all") {
			family := place(&f, p.text)
			if before, known := names[p.family]; known && before != family {
				t.Fatalf("%s is of two families", p.family)
			}
			names[p.family] = family
		}
		distinct := map[string]bool{}
		for _, family := range names {
			distinct[family] = true
		}
		if len(distinct) != len(separate) {
			t.Fatalf("%d families of %d templates", len(distinct), len(separate))
		}
	})
}

func TestTheOrderOfAddDoesNotChangeWhatIsFound(t *testing.T) {
	c := readCorpus(t)
	r := rand.New(rand.NewPCG(9, 9))
	all := c.prompts(r, 3)
	prints := make([]segment.Print, len(all))
	for i, p := range all {
		prints[i] = segment.Of(p.text)
	}
	rapid.Check(t, func(t *rapid.T) {
		// Several families have the same print, so that ties are among what is found.
		numbers := rapid.SliceOfN(rapid.IntRange(0, len(all)-1), 1, 20).Draw(t, "numbers")
		names := rapid.SliceOfN(rapid.StringMatching(`seg_[ab]{2}`), len(numbers), len(numbers)).Draw(t, "names")
		order := make([]int, len(numbers))
		for i := range order {
			order[i] = i
		}
		var one, other segment.Families
		for _, i := range order {
			one.Add(names[i], prints[numbers[i]])
		}
		for _, i := range rapid.Permutation(append(order, order[0])).Draw(t, "order") {
			other.Add(names[i], prints[numbers[i]])
		}
		for i, p := range prints {
			a, found := one.Find(p)
			b, again := other.Find(p)
			if a != b || found != again {
				t.Fatalf("%s is of %q and of %q", all[i].family, a, b)
			}
		}
	})
}

func TestOfEquallySimilarFamiliesTheFirstByNameIsFound(t *testing.T) {
	p := segment.Of("You are a helpful assistant.")
	var f segment.Families
	for _, family := range []string{"seg_b", "seg_a", "seg_c"} {
		f.Add(family, p)
	}
	if family, ok := f.Find(p); !ok || family != "seg_a" {
		t.Errorf("found %q", family)
	}
}

func TestAFamilyIsFoundByEachOfItsPrints(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	start, middle, end, other := prose(r, 30), prose(r, 12), prose(r, 28), prose(r, 4)
	var f segment.Families
	f.Add("seg_a", segment.Of(start+" "+middle+" "+other))
	late := segment.Of(middle + " " + end)
	if family, ok := f.Find(late); ok {
		t.Fatalf("found %q too early", family)
	}
	f.Add("seg_a", segment.Of(start+" "+middle+" "+end))
	if family, ok := f.Find(late); !ok || family != "seg_a" {
		t.Errorf("found %q", family)
	}
}

func TestNothingIsFoundAmongNoFamilies(t *testing.T) {
	var f segment.Families
	if family, ok := f.Find(segment.Of("You are a helpful assistant.")); ok || family != "" {
		t.Errorf("found %q", family)
	}
}

func TestManyMayFindAtOnce(t *testing.T) {
	f, prints := many(100)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i, p := range prints {
				if family, ok := f.Find(p); !ok || family != fmt.Sprint("seg_", i) {
					t.Errorf("%d is of %q", i, family)
				}
			}
		})
	}
	all.Wait()
}

// many is so many families of prompts that have little in common.
func many(families int) (*segment.Families, []segment.Print) {
	var f segment.Families
	r := rand.New(rand.NewPCG(2, 2))
	prints := make([]segment.Print, families)
	for i := range prints {
		prints[i] = segment.Of("You are a helpful assistant. Answer briefly. " + prose(r, 80))
		f.Add(fmt.Sprint("seg_", i), prints[i])
	}
	return &f, prints
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAnIndexIsSmall(t *testing.T) {
	const families = 2000
	before := heap()
	f, _ := many(families)
	if size := int64(heap()-before) / families; size > 2000 {
		t.Errorf("a family of a short prompt takes %d bytes", size)
	}
	runtime.KeepAlive(f)
}

func BenchmarkFind(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, families := range []int{10, 100, 1000, 10_000} {
		f, prints := many(families)
		long := segment.Of(prose(r, 1000))
		f.Add("seg_long", long)
		for name, p := range map[string]segment.Print{
			"known": prints[7], "long": long, "new": segment.Of(prose(r, 80)), "newlong": segment.Of(prose(r, 1000)),
		} {
			b.Run(fmt.Sprintf("%s/%d", name, families), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f.Find(p)
				}
			})
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	_, prints := many(1000)
	var f segment.Families
	for i := 0; b.Loop(); i++ {
		f.Add(fmt.Sprint("seg_", i), prints[i%len(prints)])
		if i%1000 == 999 {
			f = segment.Families{}
		}
	}
}
