package raft

import (
	"fmt"
	"slices"
	"strings"

	"sovereign/internal/grade/stat"
)

// Why a sample is not trained on.
const (
	belowMinGrade = "below_min_grade"
	notBest       = "not_best"
	notScored     = "not_scored"
	empty         = "empty"
	duplicate     = "duplicate"
)

// A mark is what is known of a sample.
type mark struct {
	why    string // empty or duplicate, which are not scored
	first  int    // of a duplicate: the place of the sample that it repeats
	scored bool
	grade  float64
}

// marks are those of all samples, prompt by prompt.
type marks struct {
	perPrompt int
	all       []mark
	texts     map[string]int // of the prompt that is being added: places by content
}

// add adds the next sample, and reports whether it is to be scored.
func (m *marks) add(s sample) bool {
	if s.index == 0 {
		m.texts = map[string]int{}
	}
	first, known := m.texts[s.content]
	made := mark{}
	switch {
	case strings.TrimSpace(s.content) == "":
		made.why = empty
	case known:
		made = mark{why: duplicate, first: first}
	default:
		m.texts[s.content] = len(m.all)
	}
	m.all = append(m.all, made)
	return made.why == ""
}

// grade returns the grade of a sample, if it has one. An empty one has 0, and a duplicate that of what it repeats.
func (m *marks) grade(place int) (float64, bool) {
	switch one := m.all[place]; one.why {
	case empty:
		return 0, true
	case duplicate:
		return m.all[one.first].grade, m.all[one.first].scored
	default:
		return one.grade, one.scored
	}
}

// done counts the samples that need no more work.
func (m *marks) done() (n int64) {
	for _, one := range m.all {
		if one.why != "" || one.scored {
			n++
		}
	}
	return n
}

// means returns the mean grades of the first n prompts: nil for one without any.
func (m *marks) means(n int) []*float64 {
	all := make([]*float64, n)
	for at := range all {
		sum, graded := 0.0, 0
		for index := range m.perPrompt {
			if grade, ok := m.grade(at*m.perPrompt + index); ok {
				sum, graded = sum+grade, graded+1
			}
		}
		if graded > 0 {
			mean := sum / float64(graded)
			all[at] = &mean
		}
	}
	return all
}

// pick returns the places of the samples to train on, of the prompts from one on: the best of each that has the grade,
// the first of several. It counts the others by reason.
func (m *marks) pick(from int, minGrade float64) (won map[int]bool, rejected map[string]int64) {
	won, rejected = map[int]bool{}, map[string]int64{}
	for at := from; at*m.perPrompt < len(m.all); at++ {
		best := -1
		for place := at * m.perPrompt; place < (at+1)*m.perPrompt; place++ {
			one := m.all[place]
			if one.why == "" && one.scored && one.grade >= minGrade && (best < 0 || one.grade > m.all[best].grade) {
				best = place
			}
		}
		for place := at * m.perPrompt; place < (at+1)*m.perPrompt; place++ {
			switch one := m.all[place]; {
			case place == best:
				won[place] = true
			case one.why != "":
				rejected[one.why]++
			case !one.scored:
				rejected[notScored]++
			case one.grade < minGrade:
				rejected[belowMinGrade]++
			default:
				rejected[notBest]++
			}
		}
	}
	return won, rejected
}

// quantiles tells how the samples from a prompt on were graded, in words.
func (m *marks) quantiles(from int) string {
	var grades []float64
	for place := from * m.perPrompt; place < len(m.all); place++ {
		if grade, ok := m.grade(place); ok {
			grades = append(grades, grade)
		}
	}
	if len(grades) == 0 {
		return "no sample has a grade"
	}
	slices.Sort(grades)
	at := func(share float64) float64 { return grades[int(share*float64(len(grades)-1))] }
	return fmt.Sprintf("of %d grades the lowest is %.2f, the median %.2f, the upper decile %.2f and the highest %.2f", len(grades),
		at(0), at(0.5), at(0.9), at(1))
}

// confidence is that of the shown intervals. Whether a round follows is decided by the lower end of one.
const confidence = 0.95

// measure returns the mean over the prompts that have a grade.
func measure(means []*float64) Measure {
	var values []float64
	for _, m := range means {
		if m != nil {
			values = append(values, *m)
		}
	}
	mean, interval := stat.Mean(values, confidence)
	return Measure{mean, interval[0], interval[1], int64(len(values))}
}

// improvement compares the same prompts before and after. A grade that is missing counts against the improvement.
func improvement(before, after []*float64) Measure {
	differences := make([]float64, min(len(before), len(after)))
	for i := range differences {
		was, is := 1.0, 0.0
		if before[i] != nil {
			was = *before[i]
		}
		if after[i] != nil {
			is = *after[i]
		}
		differences[i] = is - was
	}
	mean, interval := stat.MeanDifference(differences, confidence)
	return Measure{mean, interval[0], interval[1], int64(len(differences))}
}
