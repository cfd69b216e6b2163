package judge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Case is a disagreement between a person and a judge about the same subject.
type Case struct {
	Subject       Subject
	Human         Verdict
	HumanCritique string
	Judge         Assessment
}

// An Improvement is a draft of a better rubric. It takes effect only when a person adopts it.
type Improvement struct {
	Changes []string `json:"changes"`
	Rubric  string   `json:"rubric"`
}

// A Sample is an exchange, and what a person said about it, if anything.
type Sample struct {
	Subject  Subject
	Critique string
}

// A Suggestion is a draft of a criterion.
type Suggestion struct {
	Why    string `json:"why"`
	Name   string `json:"name"`
	Rubric string `json:"rubric"`
	Scale  Scale  `json:"scale"`
}

// The limits of drafts.
const (
	MostSuggestions = 8
	MostChanges     = 50
	MostName        = 100
	draftLimit      = 200_000 // characters of everything that is quoted
	caseLimit       = 12_000  // characters that are quoted of one subject
	maxReason       = 2_000   // characters of a reason
)

const improver = `You improve the rubric of a judge. People graded some responses of an AI model otherwise than the judge did, and the people are right. You write the rubric that would have led the judge to their verdicts.

` + rules + `
How you improve
- Find what the people value and the rubric does not say, or says so that it misleads. Keep what is not in dispute.
- Write rules that hold for responses you have not seen. Name no case, and quote none: a rubric that knows the cases measures nothing.
- A rubric says what passes and what fails so clearly that two strangers would decide alike. It has at most %d characters.
- It says nothing about the form of the judge's answer, and nothing about how data is quoted.

You answer with one JSON object, and nothing before or after it:
` + improvementAnswer + `

The present rubric, to the end of this message. %s

%s`

const (
	improvementAnswer = `{"changes": an array of strings, each a change and its reason, "rubric": a string, the whole new rubric}`
	suggestionAnswer  = `{"criteria": an array of 1 to 8 objects {"why": a string, "name": a string, "rubric": a string, "scale": "binary" or "graded"}}`
)

// Improve makes the body of a question for a better rubric. It quotes the cases in order until the limit is reached,
// and returns how many it took.
func (b *Instructions) Improve(model string, cases []Case, mode Mode) (body []byte, taken int, err error) {
	scale := "Its judge answers pass or fail."
	if b.Scale == Graded {
		scale = "Its judge gives a grade from 0 to 1, and the verdict is " + b.rule() + "."
	}
	return drafting{
		system: fmt.Sprintf(improver, MostRubric, scale, b.Rubric),
		lead:   "The disagreements, quoted:",
		trail:  dataEnd + "write the better rubric. Answer with the JSON object only: " + improvementAnswer + ".",
		form:   improvementForm,
	}.ask(model, mode, len(cases), func(i int) (*Subject, []piece) {
		c := &cases[i]
		return &c.Subject, []piece{
			because(fmt.Sprintf("CASE %d. People say %s", i+1, verdictName(c.Human)), c.HumanCritique),
			because(fmt.Sprintf(
				"The judge says %s, with a grade of %.4g", verdictName(c.Judge.Verdict), c.Judge.Grade,
			), c.Judge.Critique),
		}
	})
}

const suggester = `You draft criteria by which a judge will grade the responses of an AI model. You are shown exchanges with it, and what people said about some of them.

` + rules + `
How you draft
- Find what makes a response good or bad for the people who use this model: what they complained of, and what the exchanges show.
- A criterion looks at one thing that a judge can see in an exchange. Prefer few that matter to many that overlap.
- Its rubric says what passes and what fails so clearly that two strangers would decide alike, and holds for exchanges you have not seen. It quotes none of these.
- The scale is "binary" where something is either so or not, and "graded" where it is a matter of degree. The name has a few words, and no two criteria have the same.

You answer with one JSON object, and nothing before or after it:
` + suggestionAnswer

// Suggest makes the body of a question for new criteria. It quotes the samples in order until the limit is reached, and
// returns how many it took.
func Suggest(model string, samples []Sample, mode Mode) (body []byte, taken int, err error) {
	return drafting{
		system: suggester,
		lead:   "The exchanges, quoted:",
		trail:  dataEnd + "draft the criteria. Answer with the JSON object only: " + suggestionAnswer + ".",
		form:   suggestionForm,
	}.ask(model, mode, len(samples), func(i int) (*Subject, []piece) {
		s := &samples[i]
		heads := []piece{{head: fmt.Sprintf("EXCHANGE %d", i+1)}}
		if s.Critique != "" {
			heads = append(heads, piece{head: "People say:", text: remark(s.Critique)})
		}
		return &s.Subject, heads
	})
}

// because makes a statement with its reason, if it has one.
func because(statement, reason string) piece {
	if reason == "" {
		return piece{head: statement}
	}
	return piece{head: statement + ", because:", text: remark(reason)}
}

func remark(critique string) string { return clip(defused(critique), MostCritique) }

// verdictName writes a verdict for a line that is not quoted.
func verdictName(v Verdict) string {
	if v == Pass || v == Fail {
		return string(v)
	}
	return name(string(v))
}

// drafting is a question for a draft, without what it quotes.
type drafting struct {
	system, lead, trail string
	form                form
}

// ask quotes as many of n subjects as the limit allows, each under its heads.
func (d drafting) ask(
	model string, mode Mode, n int, item func(int) (*Subject, []piece),
) (body []byte, taken int, err error) {
	if n == 0 {
		return nil, 0, errors.New("ask for a draft: there is nothing to quote")
	}
	var quoted strings.Builder
	left := draftLimit
	for ; taken < n; taken++ {
		subject, heads := item(taken)
		text, err := subject.quote(caseLimit)
		if err != nil {
			return nil, 0, fmt.Errorf("quote subject %d: %w", taken, err)
		}
		text = lines(heads) + text
		if left -= utf8.RuneCountInString(text); left < 0 && taken > 0 {
			break
		}
		quoted.WriteString(text)
	}
	q := question{
		system: d.system, form: d.form, exchanges: []exchange{{lead: d.lead, quoted: quoted.String(), trail: d.trail}},
	}
	body, err = q.body(model, mode)
	return body, taken, err
}

// ReadImprovement reads the draft in a chat completion. Its error is a *Failure.
func ReadImprovement(completion []byte) (Improvement, error) {
	var said struct {
		Changes *[]string `json:"changes"`
		Rubric  *string   `json:"rubric"`
	}
	if err := read(completion, &said); err != nil {
		return Improvement{}, err
	}
	if said.Changes == nil || said.Rubric == nil {
		return Improvement{}, failed(Malformed, "changes and rubric are not both there")
	}
	i := Improvement{Rubric: *said.Rubric}
	if err := CheckRubric(i.Rubric); err != nil {
		return Improvement{}, failed(OutOfRange, "%v", err)
	}
	if n := len(*said.Changes); n == 0 || n > MostChanges {
		return Improvement{}, failed(OutOfRange, "%d changes are not from 1 to %d", n, MostChanges)
	}
	for _, c := range *said.Changes {
		i.Changes = append(i.Changes, clip(c, maxReason))
	}
	return i, nil
}

// ReadSuggestions reads the drafts in a chat completion: 1 to MostSuggestions, with different names. Its error is a
// *Failure.
func ReadSuggestions(completion []byte) ([]Suggestion, error) {
	var said struct {
		Criteria *[]struct {
			Why    *string `json:"why"`
			Name   *string `json:"name"`
			Rubric *string `json:"rubric"`
			Scale  *Scale  `json:"scale"`
		} `json:"criteria"`
	}
	if err := read(completion, &said); err != nil {
		return nil, err
	}
	if said.Criteria == nil {
		return nil, failed(Malformed, "criteria is not there")
	}
	if n := len(*said.Criteria); n == 0 || n > MostSuggestions {
		return nil, failed(OutOfRange, "%d criteria are not from 1 to %d", n, MostSuggestions)
	}
	var all []Suggestion
	for i, c := range *said.Criteria {
		if c.Why == nil || c.Name == nil || c.Rubric == nil || c.Scale == nil {
			return nil, failed(Malformed, "criterion %d: why, name, rubric and scale are not all there", i+1)
		}
		s := Suggestion{clip(*c.Why, maxReason), strings.TrimSpace(*c.Name), *c.Rubric, *c.Scale}
		if err := s.check(all); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// check reports what is wrong with a suggestion that comes after others.
func (s *Suggestion) check(others []Suggestion) error {
	switch {
	case s.Name == "" || utf8.RuneCountInString(s.Name) > MostName:
		return failed(OutOfRange, "the name %q does not have 1 to %d characters", s.Name, MostName)
	case slices.ContainsFunc(others, func(o Suggestion) bool { return strings.EqualFold(o.Name, s.Name) }):
		return failed(Malformed, "the name %q is there twice", s.Name)
	case !slices.Contains(Scales(), s.Scale):
		return failed(Malformed, "the scale %q is neither binary nor graded", s.Scale)
	}
	if err := CheckRubric(s.Rubric); err != nil {
		return failed(OutOfRange, "%v", err)
	}
	return nil
}
