// Package judge makes the questions that judge models are asked, and reads their answers. It does no I/O: it makes the
// bodies of chat completions, and reads what came back.
//
// What is judged was written by others, and some of it tries to influence the judge. Two rules prevent that without
// trusting a model. Every quoted line is marked as quoted, between two boundary lines whose mark occurs nowhere in the
// text, so that no text can end its quotation. And an answer that is not exactly the JSON asked for is a failure, which
// is never counted as a verdict.
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

// A Verdict says whether a rubric is met.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
)

// A Scale says how a judge decides.
type Scale string

// The scales. On the binary one the verdict decides, and the grade is how sure the judge is of a pass; on the graded
// one the grade decides: the verdict is whether it reaches the threshold.
const (
	Binary Scale = "binary"
	Graded Scale = "graded"
)

// Scales returns all scales.
func Scales() []Scale { return []Scale{Binary, Graded} }

// A Mode says how a model is asked.
type Mode int

// The modes. A structured question brings the schema of its answer, and a temperature of 0; a plain one says the form
// in words alone, for models that refuse those parameters.
const (
	Structured Mode = iota
	Plain
)

// Instructions are what a judge is told, whatever it judges.
type Instructions struct {
	Rubric    string
	Scale     Scale
	Threshold float64 // the lowest grade that passes
	Examples  []Example
}

// A Subject is what is judged. An exchange has one step, a trace has several.
type Subject struct{ Steps []Step }

// A Step is one logged exchange: OpenAI's messages, the assistant's message that answered them, and the tools on offer,
// which may be null.
type Step struct {
	Messages jsontext.Value `json:"messages"`
	Response jsontext.Value `json:"response"`
	Tools    jsontext.Value `json:"tools,omitempty"`
}

// An Example is an exchange that a person graded. Without a grade, or with one that contradicts its verdict, it is
// shown with a grade of 1 where it passes and 0 where it fails.
type Example struct {
	Subject  Subject
	Verdict  Verdict
	Grade    *float64
	Critique string
}

// An Assessment is a judge's answer. A model writes its members in this order: reasons that come first guide the grade,
// reasons that come last are invented for it.
type Assessment struct {
	Critique string  `json:"critique"`
	Grade    float64 `json:"grade"`
	Verdict  Verdict `json:"verdict"`
}

// The limits, in characters.
const (
	MostRubric   = 20_000
	MostCritique = 4_000
	MostExamples = 16      // examples, not characters
	subjectLimit = 200_000 // of what is quoted of a subject
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
	case !(b.Threshold > 0 && b.Threshold <= 1): // NaN is refused, too
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

// Ask makes the body of the chat completion that asks a model about s. The same question always has the same body. The
// system message and the examples are the same for every subject, so that providers can cache them.
func (b *Instructions) Ask(model string, s *Subject, mode Mode) ([]byte, error) {
	if len(b.Examples) > MostExamples {
		return nil, fmt.Errorf("ask a judge: %d examples are over %d", len(b.Examples), MostExamples)
	}
	q := question{system: b.systemMessage(), form: verdictForm}
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
		q.exchanges = append(q.exchanges, exchange{
			lead: exampleLead, quoted: text, trail: b.reminder(), answer: string(answer),
		})
	}
	text, err := s.quote(subjectLimit)
	if err != nil {
		return nil, fmt.Errorf("quote what is judged: %w", err)
	}
	q.exchanges = append(q.exchanges, exchange{lead: subjectLead, quoted: text, trail: b.reminder()})
	return q.body(model, mode)
}

// Digest identifies a question by its content: model, instructions and subject. Questions with the same words have the
// same digest, whatever the mode. What is not shown to a judge is not part of it.
func (b *Instructions) Digest(model string, s *Subject) ([sha256.Size]byte, error) {
	body, err := b.Ask(model, s, Structured)
	return sha256.Sum256(body), err
}

// shown returns an example's assessment, as a judge would have had to write it.
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

// verdict returns the verdict of a grade.
func (b *Instructions) verdict(grade float64) Verdict {
	if grade >= b.Threshold {
		return Pass
	}
	return Fail
}
