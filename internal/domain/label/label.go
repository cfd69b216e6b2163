// Package label keeps labels: people's grades of what models said, each with a copy of what was graded. Labels are
// split into two halves. Judges learn from the tuning half, and are measured by the report half.
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

// A Label is one person's grade of an item, for one judge or none. Only its author can change it, in a review, and a
// correction is an adjudication beside it.
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
	InBothHalves bool          `json:"straddles" doc:"It ties conversations of both halves together: nothing is measured by it, and no judge is shown it"`
	CreatedAt    clock.Time    `json:"created_at"`
	Adjudication *Adjudication `json:"adjudication"`
	Subject      *Frozen       `json:"subject,omitempty" doc:"What was graded, as it was then; only where one label is read"`
}

// Frozen is the copy of what was graded: one step, or the steps of a whole run.
type Frozen struct {
	Steps []judge.Step `json:"steps" nullable:"false"`
}

// An Adjudication is the result of a second review of a label.
type Adjudication struct {
	Kind            Kind           `json:"kind" enum:"label_error,judge_error,ambiguous,confirmed"`
	OriginalVerdict judge.Verdict  `json:"original_verdict" enum:"pass,fail"`
	Verdict         *judge.Verdict `json:"adjudicated_verdict" enum:"pass,fail" doc:"null when the label was withdrawn"`
	Note            string         `json:"note"`
	By              string         `json:"adjudicated_by"`
	At              clock.Time     `json:"adjudicated_at"`
}

// A Kind says which was wrong where a judge and a label disagree.
type Kind string

// The kinds.
const (
	LabelError Kind = "label_error" // the label is corrected
	JudgeError Kind = "judge_error" // the label is kept, and the judge disagrees with it
	Ambiguous  Kind = "ambiguous"   // the label is withdrawn
	Confirmed  Kind = "confirmed"   // the label is kept, and the judge agrees with it
)

// A Ruling is a request to adjudicate a label. Without a kind it is a blind review: its verdict alone decides.
type Ruling struct {
	Kind    Kind          `json:"kind,omitempty" enum:"label_error,judge_error,ambiguous" doc:"What was wrong; may be left out where a verdict is given, which then decides: a blind review"`
	Verdict judge.Verdict `json:"verdict,omitempty" enum:"pass,fail" doc:"The right one; a label_error without one turns the label's round"`
	Note    string        `json:"note,omitempty" maxLength:"4000"`
}

// resolve returns the kind of the adjudication, and the label's verdict after it, which is "" for a withdrawn label.
// was is the verdict that the label was given. judged is the judge's verdict in the last calibration, or "".
func (r Ruling) resolve(was, judged judge.Verdict) (Kind, judge.Verdict, error) {
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
		return LabelError, opposite(was), nil
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

func opposite(v judge.Verdict) judge.Verdict {
	if v == judge.Pass {
		return judge.Fail
	}
	return judge.Pass
}

// A New label is a label to be made: the verdict on a logged exchange, on a whole run, or on an exchange in the
// request.
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

// inline reports whether the exchange is in the request.
func (n *New) inline() bool { return n.Messages != nil || n.Response != nil || n.Tools != nil }

// check reports the first rule that n breaks. at is its place in the body, such as "labels[3].".
func (n *New) check(at string) error {
	named := 0
	for _, given := range []bool{n.RequestID != "", n.TraceID != "", n.inline()} {
		if given {
			named++
		}
	}
	switch {
	case named != 1:
		return fault.Invalid(at+"request_id",
			"or trace_id, or messages and response: a label is of exactly one of them")
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

// maxItem is the size limit of what is graded, in bytes. A run may have many exchanges.
const maxItem = 2 << 20

// An item is the stored copy of what was graded.
type item struct {
	steps     []byte // JSON
	hash      string // identifies it in the workspace
	relations Relations
}

// newItem makes the item of some steps. Steps that a judge would be shown alike are the same item, whatever request
// they came from.
func newItem(steps []judge.Step, trace, field string) (item, error) {
	text, err := json.Marshal(steps, lenient)
	if err != nil {
		return item{}, fmt.Errorf("copy what is graded: %w", err)
	}
	switch {
	case len(text) > maxItem:
		return item{}, fault.Invalid(field, "is of something that is too long to be graded: more than 2 MiB")
	case len(steps) == 0:
		return item{}, fault.Invalid(field, "is of a run without steps")
	}
	subject := judge.Subject{Steps: steps}
	id, err := subject.Identity()
	if err != nil { // it cannot be shown to a judge
		id = sha256.Sum256(text)
	}
	return item{steps: text, hash: string(id[:]), relations: RelationsOf(steps, trace)}, nil
}

// lenient reads and writes logged JSON as it is.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// newInlineItem makes the item of an exchange in the request, without its credentials.
func newInlineItem(n *New, at string) (item, error) {
	if len(n.Tools) > 0 && n.Tools.Kind() != '[' && n.Tools.Kind() != 'n' {
		return item{}, fault.Invalid(at+"tools", "must be a list of tools")
	}
	var all redact.Exchange
	step := judge.Step{Messages: all.Messages(n.Messages), Response: all.Messages(n.Response), Tools: all.JSON(n.Tools)}
	step.Messages, step.Response, step.Tools = all.RedactFound(step.Messages), all.RedactFound(step.Response), all.RedactFound(step.Tools)
	var answer struct {
		Role string `json:"role"`
	}
	var messages []jsontext.Value
	switch _, err := fold.Keys(step.Messages, step.Response); {
	case err == nil && json.Unmarshal(step.Response, &answer, lenient) == nil && answer.Role != "" &&
		answer.Role != chat.RoleAssistant:
		return item{}, fault.Invalid(at+"response", "must be a message of the assistant")
	case err == nil && json.Unmarshal(step.Messages, &messages, lenient) == nil && len(messages) == 0:
		return item{}, fault.Invalid(at+"messages", "must not be empty")
	case err == nil:
	case strings.HasPrefix(err.Error(), "response"):
		return item{}, fault.Invalid(at+"response", "must be a message of the assistant")
	default:
		return item{}, fault.Invalid(at+"messages", "must be a list of messages that each have a role")
	}
	return newItem([]judge.Step{step}, "", at+"messages")
}

// prefix makes the place of a label in the body the beginning of a message.
func prefix(at string) string {
	if at == "" {
		return ""
	}
	return strings.TrimSuffix(at, ".") + ": "
}

// optional returns a pointer to text, or nil when it is empty.
func optional[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

// Counts count the items that were graded for a criterion, by what their labels say together. Withdrawn items, and
// those in both halves, are not counted.
type Counts struct {
	Pass int64 `json:"pass" doc:"Items, however many people graded each"`
	Fail int64 `json:"fail"`
	Ties int64 `json:"-"` // people are evenly split over them
}

// An Example is an item of the tuning half with the label that decides, as judges are shown it.
type Example struct {
	ID       string
	Item     []byte
	Verdict  judge.Verdict
	Grade    *float64
	Critique string
}
