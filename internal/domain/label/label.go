// Package label keeps people's grades of what models said: frozen copies of it with a verdict, in two halves, of which judges are
// tuned on one and measured on the other.
package label

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/grade/judge"
	"sovereign/internal/text/fold"
	"sovereign/internal/text/redact"
	"sovereign/internal/wire/chat"
)

// A Label is one grade. What it says never changes: a correction is an adjudication beside it.
type Label struct {
	ID           string        `json:"id"`
	Object       string        `json:"object" enum:"label"`
	RequestID    *string       `json:"request_id" doc:"The exchange that was graded; null for a trace, and for what was sent along"`
	TraceID      *string       `json:"trace_id" doc:"The whole run that was graded; null for an exchange"`
	CriterionID  *string       `json:"criterion_id" doc:"The judge that the grade is for, if it is for one"`
	Verdict      judge.Verdict `json:"verdict" enum:"pass,fail"`
	Grade        *float64      `json:"grade" doc:"0 to 1"`
	Critique     string        `json:"critique"`
	Author       string        `json:"author" doc:"Who graded: the key's user, unless another name was given"`
	Source       string        `json:"source" doc:"Where the grade comes from: api, unless another was given"`
	InReportHalf bool          `json:"in_report_half" doc:"It measures judges, and they never see it; the others tune them"`
	Straddles    bool          `json:"straddles" doc:"It ties conversations of both halves together: nothing is measured by it, and no judge is shown it"`
	CreatedAt    clock.Time    `json:"created_at"`
	Adjudication *Adjudication `json:"adjudication"`
	Subject      *Frozen       `json:"subject,omitempty" doc:"What was graded, as it was then; only where one label is read"`
}

// Frozen is what was graded: one step, or those of a whole run.
type Frozen struct {
	Steps []judge.Step `json:"steps" nullable:"false"`
}

// An Adjudication says what a second look at a label found.
type Adjudication struct {
	Kind            Kind           `json:"kind" enum:"label_error,judge_error,ambiguous,confirmed"`
	OriginalVerdict judge.Verdict  `json:"original_verdict" enum:"pass,fail"`
	Verdict         *judge.Verdict `json:"adjudicated_verdict" enum:"pass,fail" doc:"null when the label was withdrawn"`
	Note            string         `json:"note"`
	By              string         `json:"adjudicated_by"`
	At              clock.Time     `json:"adjudicated_at"`
}

// A Kind is what was wrong where a judge and a label disagree, or that nothing was.
type Kind string

// The kinds.
const (
	LabelError Kind = "label_error" // the label is corrected
	JudgeError Kind = "judge_error" // the label stands, and the judge disagrees with it
	Ambiguous  Kind = "ambiguous"   // the label is withdrawn
	Confirmed  Kind = "confirmed"   // the label stands, and the judge agrees
)

// A Ruling is an adjudication before it is made. Without a kind it is a blind one: its verdict alone decides.
type Ruling struct {
	Kind    Kind          `json:"kind,omitempty" enum:"label_error,judge_error,ambiguous" doc:"What was wrong; may be left out where a verdict is given, which then decides: a blind review"`
	Verdict judge.Verdict `json:"verdict,omitempty" enum:"pass,fail" doc:"The right one; a label_error without one turns the label's round"`
	Note    string        `json:"note,omitempty" maxLength:"4000"`
}

// settle is the verdict that stands after the ruling, "" for none, and what kind it is. judged is the judge's verdict in the last
// calibration, "" where there is none.
func (r Ruling) settle(was, judged judge.Verdict) (Kind, judge.Verdict, error) {
	switch r.Kind {
	case "":
		switch {
		case r.Verdict == "":
			return "", "", fault.Invalid("kind", "is required where no verdict is given")
		case r.Verdict != was:
			return LabelError, r.Verdict, nil
		case judged != "" && judged != was:
			return JudgeError, was, nil
		}
		return Confirmed, was, nil
	case LabelError:
		if r.Verdict == was {
			return "", "", fault.Invalid("verdict", "is the label's own: a label_error changes it")
		}
		return LabelError, other(was), nil
	case JudgeError:
		if r.Verdict != "" && r.Verdict != was {
			return "", "", fault.Invalid("verdict", "differs from the label's, which a judge_error leaves as it is")
		}
		return JudgeError, was, nil
	default:
		if r.Verdict != "" {
			return "", "", fault.Invalid("verdict", "has no place beside ambiguous, which withdraws the label")
		}
		return Ambiguous, "", nil
	}
}

// other is the opposite verdict.
func other(v judge.Verdict) judge.Verdict {
	if v == judge.Pass {
		return judge.Fail
	}
	return judge.Pass
}

// A New label is what somebody posts: the verdict on a logged exchange, on a whole run, or on what is sent along.
type New struct {
	RequestID   string         `json:"request_id,omitempty" doc:"A logged exchange, by its x-request-id"`
	TraceID     string         `json:"trace_id,omitempty" doc:"A logged run"`
	Messages    jsontext.Value `json:"messages,omitempty" doc:"What was asked, of an exchange that was not logged"`
	Response    jsontext.Value `json:"response,omitempty" doc:"The assistant's message that answered it"`
	Tools       jsontext.Value `json:"tools,omitempty" doc:"The tools that were offered"`
	CriterionID string         `json:"criterion_id,omitempty" doc:"The judge that this grade is for"`
	Verdict     judge.Verdict  `json:"verdict,omitempty" enum:"pass,fail"`
	Grade       *float64       `json:"grade,omitempty" minimum:"0" maximum:"1"`
	Critique    string         `json:"critique,omitempty" maxLength:"8000" doc:"Why"`
	Author      string         `json:"author,omitempty" maxLength:"128" doc:"Who graded; the key's user by default"`
	Source      string         `json:"source,omitempty" maxLength:"64" doc:"Where the grade comes from; api by default"`
}

// inline reports whether what was graded is sent along.
func (n *New) inline() bool { return n.Messages != nil || n.Response != nil || n.Tools != nil }

// check reports the first rule that n breaks. at is where it stands in the body, such as labels[3].
func (n *New) check(at string) error {
	named := 0
	for _, given := range []bool{n.RequestID != "", n.TraceID != "", n.inline()} {
		if given {
			named++
		}
	}
	switch {
	case named != 1:
		return fault.Invalid(at+"request_id", "or trace_id, or messages and response: a label is of exactly one of them")
	case n.inline() && n.Messages == nil:
		return fault.Invalid(at+"messages", "is required beside response")
	case n.inline() && n.Response == nil:
		return fault.Invalid(at+"response", "is required beside messages")
	case n.Verdict == "":
		return fault.Invalid(at+"verdict", "is required")
	}
	for name, text := range map[string]string{"critique": n.Critique, "author": n.Author, "source": n.Source} {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fault.Invalid(at+name, "must be UTF-8 without NUL characters")
		}
	}
	return nil
}

// maxItem is how large what was graded may be: a run is many exchanges.
const maxItem = 2 << 20

// An item is what was graded, as it is kept and known by.
type item struct {
	steps []byte // JSON
	hash  string
	kin   Kin
}

// frozen is the item of some steps. Those that a judge would be shown alike are one item, whatever request they came from.
func frozen(steps []judge.Step, trace, field string) (item, error) {
	text, err := json.Marshal(steps, lenient)
	if err != nil {
		return item{}, fmt.Errorf("freeze: %w", err)
	}
	switch {
	case len(text) > maxItem:
		return item{}, fault.Invalid(field, "is of something that is too long to be graded: more than 2 MiB")
	case len(steps) == 0:
		return item{}, fault.Invalid(field, "is of a run without steps")
	}
	subject := judge.Subject{Steps: steps}
	id, err := subject.Identity()
	if err != nil { // no judge can be shown it
		id = sha256.Sum256(text)
	}
	return item{steps: text, hash: string(id[:]), kin: KinOf(steps, trace)}, nil
}

var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// sent is the item of what was sent along, without its credentials.
func sent(n *New, at string) (item, error) {
	if len(n.Tools) > 0 && n.Tools.Kind() != '[' && n.Tools.Kind() != 'n' {
		return item{}, fault.Invalid(at+"tools", "must be a list of tools")
	}
	var all redact.Exchange
	step := judge.Step{Messages: all.JSON(n.Messages), Response: all.JSON(n.Response), Tools: all.JSON(n.Tools)}
	step.Messages, step.Response, step.Tools = all.RedactFound(step.Messages), all.RedactFound(step.Response), all.RedactFound(step.Tools)
	var answer struct {
		Role string `json:"role"`
	}
	var messages []jsontext.Value
	switch _, err := fold.Keys(step.Messages, step.Response); {
	case err == nil && json.Unmarshal(step.Response, &answer, lenient) == nil && answer.Role != "" && answer.Role != chat.RoleAssistant:
		return item{}, fault.Invalid(at+"response", "must be a message of the assistant")
	case err == nil && json.Unmarshal(step.Messages, &messages, lenient) == nil && len(messages) == 0:
		return item{}, fault.Invalid(at+"messages", "must not be empty")
	case err == nil:
	case strings.HasPrefix(err.Error(), "response"):
		return item{}, fault.Invalid(at+"response", "must be a message of the assistant")
	default:
		return item{}, fault.Invalid(at+"messages", "must be a list of messages that each have a role")
	}
	return frozen([]judge.Step{step}, "", at+"messages")
}
