// Package judge is what a model is asked that judges other models, and how its answer is read. It speaks to nobody: it
// makes the bodies of chat completions, and reads what came back.
//
// Whatever is judged was written by others, and some of it is meant to move the judge. Two things stand against that, and
// neither trusts a model: every line that is quoted is marked as quoted, inside a fence whose mark is nowhere in the text,
// so that no text can end its quotation; and an answer that is not exactly a verdict is a failure, which is never counted
// as one.
package judge

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// A Verdict is whether a rubric is met.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
)

// A Scale is how a judge decides.
type Scale string

// The scales. On the binary one the verdict decides, and the grade is how sure the judge is of a pass; on the graded one
// the grade decides: the verdict is whether it reaches the threshold.
const (
	Binary Scale = "binary"
	Graded Scale = "graded"
)

// Scales are all of them.
func Scales() []Scale { return []Scale{Binary, Graded} }

// A Mode is how a model is asked.
type Mode int

// The modes. A structured question brings the schema of its answer, and a temperature of 0; a plain one says the form in
// words alone, for models that refuse those parameters.
const (
	Structured Mode = iota
	Plain
)

// A Instructions is what a judge is told, whatever it judges.
type Instructions struct {
	Rubric    string
	Scale     Scale
	Threshold float64 // the lowest grade that passes
	Examples  []Example
}

// A Subject is what is judged: one step for an exchange, several for a whole trace.
type Subject struct{ Steps []Step }

// A Step is one exchange as it was logged: OpenAI's messages, the assistant's message that answered them, and the tools
// that were on offer, which may be null.
type Step struct {
	Messages jsontext.Value `json:"messages"`
	Response jsontext.Value `json:"response"`
	Tools    jsontext.Value `json:"tools,omitempty"`
}

// An Example is an exchange that a person graded. One without a grade, or with one that its verdict contradicts, is shown with
// a grade of 1 where it passes, and of 0 where it fails.
type Example struct {
	Subject  Subject
	Verdict  Verdict
	Grade    *float64
	Critique string
}

// An Assessment is a judge's answer. Its members are in the order in which a model shall write them: one that gives its
// reasons first grades by them, and one that gives them last makes them up.
type Assessment struct {
	Critique string  `json:"critique"`
	Grade    float64 `json:"grade"`
	Verdict  Verdict `json:"verdict"`
}

// The bounds, in characters.
const (
	MostRubric   = 20_000
	MostCritique = 4_000
	MostExamples = 16
	room         = 200_000 // of what is quoted of a subject
	exampleLimit = 20_000  // of what is quoted of an example
)

// Check reports the first rule that b breaks, naming the field.
func (b *Instructions) Check() error {
	if err := CheckRubric(b.Rubric); err != nil {
		return err
	}
	switch {
	case !slices.Contains(Scales(), b.Scale):
		return fault.Invalid("scale", "must be binary or graded")
	case !(b.Threshold > 0 && b.Threshold <= 1): // which refuses what is no number, too
		return fault.Invalid("pass_threshold", "must be above 0 and at most 1")
	}
	return nil
}

// CheckRubric reports what is wrong with a rubric.
func CheckRubric(rubric string) error {
	switch {
	case strings.TrimSpace(rubric) == "":
		return fault.Invalid("rubric", "must say what passes")
	case !utf8.ValidString(rubric):
		return fault.Invalid("rubric", "must be text in UTF-8")
	case utf8.RuneCountInString(rubric) > MostRubric:
		return fault.Invalid("rubric", fmt.Sprintf("must have at most %d characters", MostRubric))
	}
	return nil
}

// Ask is the body of the chat completion that asks model about s. The same question has the same body, and its system
// message and examples are the same for every subject, so that providers can remember them.
func (b *Instructions) Ask(model string, s *Subject, mode Mode) ([]byte, error) {
	if len(b.Examples) > MostExamples {
		return nil, fmt.Errorf("ask a judge: %d examples are over %d", len(b.Examples), MostExamples)
	}
	q := question{system: b.charge(), form: verdictForm}
	for i := range b.Examples {
		example := &b.Examples[i]
		text, err := example.Subject.quote(exampleLimit)
		if err != nil {
			return nil, fmt.Errorf("quote example %d: %w", i, err)
		}
		answer, err := json.Marshal(b.shown(example))
		if err != nil {
			return nil, fmt.Errorf("write the assessment of example %d: %w", i, err)
		}
		q.exchanges = append(q.exchanges, exchange{lead: exampleLead, quoted: text, trail: b.reminder(), answer: string(answer)})
	}
	text, err := s.quote(room)
	if err != nil {
		return nil, fmt.Errorf("quote what is judged: %w", err)
	}
	q.exchanges = append(q.exchanges, exchange{lead: subjectLead, quoted: text, trail: b.reminder()})
	return q.body(model, mode)
}

// Digest is the address of a question by its content: model, brief and subject. Questions that are asked in the same
// words are one question, whatever the mode; what is not shown to a judge is no part of it.
func (b *Instructions) Digest(model string, s *Subject) ([sha256.Size]byte, error) {
	body, err := b.Ask(model, s, Structured)
	return sha256.Sum256(body), err
}

// shown is an example's assessment, as a judge would have had to write it.
func (b *Instructions) shown(example *Example) Assessment {
	o := Assessment{Critique: clip(defused(example.Critique), MostCritique), Verdict: example.Verdict}
	if o.Verdict == Pass {
		o.Grade = 1
	}
	if g := example.Grade; g != nil && *g >= 0 && *g <= 1 && (b.Scale != Graded || b.verdict(*g) == o.Verdict) {
		o.Grade = *g
	}
	return o
}

// verdict is that of a grade.
func (b *Instructions) verdict(grade float64) Verdict {
	if grade >= b.Threshold {
		return Pass
	}
	return Fail
}

// clip is s, or its first characters and an ellipsis where it has more than most.
func clip(s string, most int) string {
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	end := 0
	for range most - 1 {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return s[:end] + "…"
}
