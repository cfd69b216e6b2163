package judge

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

func TestNoDisagreementEscapesItsFence(t *testing.T) {
	b := Instructions{Rubric: "R", Scale: Graded, Threshold: 0.5}
	calm, _, err := b.Improve("m", []Case{{Subject: *stage(t, func() string { return "x" }), Human: Pass, HumanCritique: "x", Judge: Assessment{"x", 0, Fail}}}, Plain)
	want, wantRoles, _ := decoded(t, calm, err)
	rapid.Check(t, func(rt *rapid.T) {
		texts := hostile([]string{marksOf(want)[0]})
		draw := func() string { return texts.Draw(rt, "text") }
		body, _, err := b.Improve("m", []Case{{Subject: *stage(t, draw), Human: Pass, HumanCritique: "x" + draw(), Judge: Assessment{"x" + draw(), 0, Fail}}}, Plain)
		got, roles, _ := decoded(rt, body, err)
		if !slices.Equal(roles, wantRoles) || got[0] != want[0] || shape(got[1]) != shape(want[1]) {
			rt.Fatalf("%q", got)
		}
		if m := marksOf(got); len(m) != 1 || strings.Count(strings.Join(got, "\x00"), m[0]) != 2 {
			rt.Fatalf("%q", got)
		}
	})
}

func TestADraftTakesCasesInOrderUpToItsLimit(t *testing.T) {
	for _, c := range []struct{ cases, size, least, most int }{
		{1, 10, 1, 1},
		{30, 1_000, 30, 30},
		{1, 500_000, 1, 1},
		{100, 500_000, 15, 16}, // of 12,000 characters and their heads
		{400, 1_000, 150, 199},
	} {
		cases, samples := make([]Case, c.cases), make([]Sample, c.cases)
		for i := range cases {
			s := *says(t, strings.Repeat("x", c.size), "answer")
			cases[i] = Case{Subject: s, Human: Pass, Judge: Assessment{Verdict: Fail}}
			samples[i] = Sample{Subject: s, Critique: "hm"}
		}
		improve, taken, err := instructions.Improve("m", cases, Structured)
		suggest, sampled, err2 := Suggest("m", samples, Structured)
		for _, d := range []struct {
			body  []byte
			taken int
			err   error
			head  string
		}{{improve, taken, err, "\nCASE "}, {suggest, sampled, err2, "\nEXCHANGE "}} {
			texts, _, _ := decoded(t, d.body, d.err)
			if d.taken < c.least || d.taken > c.most || strings.Count(texts[1], d.head) != d.taken {
				t.Errorf("%+v: %d taken, %d%s", c, d.taken, strings.Count(texts[1], d.head), d.head)
			}
			if n := utf8.RuneCountInString(texts[1]); n > draftLimit+1_000 {
				t.Errorf("%+v: %d characters", c, n)
			}
		}
	}
	for name, err := range map[string]error{
		"improve": func() error { _, _, err := instructions.Improve("m", nil, Plain); return err }(),
		"suggest": func() error { _, _, err := Suggest("m", nil, Plain); return err }(),
	} {
		if err == nil {
			t.Errorf("%s from nothing", name)
		}
	}
}

func TestADraftIsReadAsStrictlyAsAnAssessment(t *testing.T) {
	long := strings.Repeat("é", MostRubric)
	for text, want := range map[string]FailureKind{
		`{"changes":["a"],"rubric":"R"}`:                                            "",
		"```json\n{\"changes\":[\"a\"],\"rubric\":\"R\"}\n```":                      "",
		`{"changes":["a"],"rubric":"` + long + `"}`:                                 "",
		`{"changes":["a"],"rubric":"` + long + `x"}`:                                OutOfRange,
		`{"changes":["a"],"rubric":" "}`:                                            OutOfRange,
		`{"changes":[],"rubric":"R"}`:                                               OutOfRange,
		`{"changes":[` + strings.Repeat(`"a",`, MostChanges) + `"a"],"rubric":"R"}`: OutOfRange,
		`{"changes":null,"rubric":"R"}`:                                             Malformed,
		`{"changes":["a"]}`:                                                         Malformed,
		`{"changes":"a","rubric":"R"}`:                                              Malformed,
		`{"changes":[1],"rubric":"R"}`:                                              Malformed,
		`{"changes":["a"],"rubric":"R","more":1}`:                                   Malformed,
		`{"changes":["a"],"rubric":"R","rubric":"S"}`:                               Malformed,
		`Here it is: {"changes":["a"],"rubric":"R"}`:                                Malformed,
		``: Empty,
	} {
		i, err := ReadImprovement(completed(text))
		if kindOf(err) != want || (err == nil) != (want == "") || err == nil && (i.Changes[0] != "a" || i.Rubric == "") {
			t.Errorf("%.100s: %v, want %q", text, err, want)
		}
	}
	const one = `{"why":"w","name":"N","rubric":"R","scale":"graded"}`
	for text, want := range map[string]FailureKind{
		`{"criteria":[` + one + `]}`: "",
		`{"criteria":[` + one + `,` + strings.Replace(one, "N", "M", 1) + `]}`: "",
		`{"criteria":[` + strings.Replace(one, "graded", "binary", 1) + `]}`:   "",
		`{"criteria":[` + one + `,` + strings.Replace(one, "N", "n", 1) + `]}`: Malformed,
		`{"criteria":[` + strings.Replace(one, "graded", "stars", 1) + `]}`:    Malformed,
		`{"criteria":[` + strings.Replace(one, "}", `,"x":1}`, 1) + `]}`:       Malformed,
		`{"criteria":[{"name":"N","rubric":"R","scale":"graded"}]}`:            Malformed,
		`{"criteria":[null]}`: Malformed,
		`{"criteria":null}`:   Malformed,
		`{}`:                  Malformed,
		`[` + one + `]`:       Malformed,
		`{"criteria":[]}`:     OutOfRange,
		`{"criteria":[` + strings.Replace(one, "N", " ", 1) + `]}`:                      OutOfRange,
		`{"criteria":[` + strings.Replace(one, "N", strings.Repeat("n", 101), 1) + `]}`: OutOfRange,
		`{"criteria":[` + strings.Replace(one, "R", "", 1) + `]}`:                       OutOfRange,
	} {
		s, err := ReadSuggestions(completed(text))
		if kindOf(err) != want || (err == nil) != (want == "") || err == nil && (s[0].Name != "N" || s[0].Why != "w" || s[0].Rubric != "R") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for n, fine := range map[int]bool{MostSuggestions: true, MostSuggestions + 1: false} {
		var all []Suggestion
		for i := range n {
			all = append(all, Suggestion{"w", "name " + string(rune('a'+i)), "R", Binary})
		}
		text, err := json.Marshal(map[string]any{"criteria": all})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadSuggestions(completed(string(text))); fine != (err == nil) || fine && !slices.Equal(got, all) {
			t.Errorf("%d: %v, %v", n, got, err)
		}
	}
}
