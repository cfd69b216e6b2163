package reward

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/text/redact"
	"sovereign/internal/wire/chat"
)

// The limits of one call of score.
const (
	MaxItems  = 512
	maxName   = 200     // characters of a step or an id
	maxItem   = 1 << 20 // bytes of an item's texts, as JSON
	maxTurns  = 1000    // messages of a prompt or a trajectory
	scoreBody = 64 << 20
)

// A ScoreRequest asks for the rewards of items.
type ScoreRequest struct {
	Step  string      `json:"step" minLength:"1" maxLength:"200" doc:"The trainer's step: items of one step are compared with each other"`
	Items []ScoreItem `json:"items" minItems:"1" maxItems:"512" nullable:"false"`
}

// A ScoreItem is one completion to be scored. It has a prompt or messages.
type ScoreItem struct {
	ID         string           `json:"id" minLength:"1" maxLength:"200" doc:"Yours; an id with other content is another item"`
	Prompt     *string          `json:"prompt,omitempty" doc:"What the model was asked, as a text"`
	Messages   []jsontext.Value `json:"messages,omitempty" nullable:"false" doc:"What the model was asked, as messages in OpenAI's form, instead of prompt"`
	Completion jsontext.Value   `json:"completion" doc:"What the model answered: a text or, in agentic sessions, messages with tool calls and results too"`
	Label      string           `json:"label,omitempty" doc:"Stored and exported with the item; judges do not see it"`
}

// Scores is the answer to a ScoreRequest, in the order of its items.
type Scores struct {
	Rewards []*float64  `json:"rewards" nullable:"false" doc:"0 to 1, or null where there is no reward; data says why"`
	Data    []ItemScore `json:"data" nullable:"false"`
	Held    bool        `json:"held"`
	Status  Status      `json:"status" enum:"ACTIVE,COMPLETED,OVERBUDGET,STOPPED,FAILED"`
	Spent   money.Nano  `json:"spent_usd" doc:"What the session's judges were paid so far, according to the ledger"`
}

// An ItemScore is what an item was given.
type ItemScore struct {
	ID      string         `json:"id"`
	Reward  *float64       `json:"reward"`
	Verdict *judge.Verdict `json:"verdict" enum:"pass,fail"`
	Grades  []JudgeGrade   `json:"grades" nullable:"false" doc:"One per judge, where they were asked"`
	Flags   []Flag         `json:"flags" nullable:"false" enum:"judges_disagree,judge_failed,pending,over_budget,stopped"`
}

// A digest identifies a text.
type digest = [sha256.Size]byte

// An item is a completion to be scored, as it is judged and stored: without credentials, its prompt and its completion
// as JSON, each a text or messages.
type item struct {
	ID                 string
	Label              string
	Prompt, Completion jsontext.Value
	prompt, completion digest
	content            digest // of all three
}

// check reports the first rule that a request breaks, and returns its items.
func (q *ScoreRequest) check(r *session) ([]item, error) {
	if err := checkName("step", q.Step); err != nil {
		return nil, err
	}
	if n := len(q.Items); n == 0 || n > MaxItems {
		return nil, fault.Invalid("items", fmt.Sprintf("must be 1 to %d items", MaxItems))
	}
	all := make([]item, len(q.Items))
	for i := range q.Items {
		made, err := q.Items[i].check(fmt.Sprintf("items[%d].", i), r.Agentic)
		if err != nil {
			return nil, err
		}
		all[i] = made
	}
	return all, nil
}

func checkName(field, name string) error {
	if n := utf8.RuneCountInString(name); n == 0 || n > maxName {
		return fault.Invalid(field, fmt.Sprintf("must be 1 to %d characters", maxName))
	}
	return nil
}

// check reports the first rule that an item breaks. at is where it stands in its request.
func (s *ScoreItem) check(at string, agentic bool) (made item, err error) {
	if err := checkName(at+"id", s.ID); err != nil {
		return made, err
	}
	made = item{ID: s.ID, Label: judging.Storable(redact.String(s.Label))}
	switch {
	case (s.Prompt != nil) == (s.Messages != nil):
		return made, fault.Invalid(at+"prompt", "or messages must be given, and not both")
	case s.Prompt != nil:
		made.Prompt, err = text(at+"prompt", *s.Prompt)
	default:
		made.Prompt, err = messages(at+"messages", s.Messages)
	}
	if err != nil {
		return made, err
	}
	if made.Completion, err = s.completed(at+"completion", agentic); err != nil {
		return made, err
	}
	if len(made.Prompt)+len(made.Completion)+len(made.Label) > maxItem {
		return made, fault.Invalid(at[:len(at)-1], fmt.Sprintf("must have at most %d bytes", maxItem))
	}
	made.Prompt, _ = redact.JSON(made.Prompt)
	made.Completion, _ = redact.JSON(made.Completion)
	made.identify()
	return made, nil
}

// completed returns the completion: a text or, in agentic sessions, the messages of a trajectory.
func (s *ScoreItem) completed(field string, agentic bool) (jsontext.Value, error) {
	switch s.Completion.Kind() {
	case '"':
		var said string
		if err := json.Unmarshal(s.Completion, &said); err != nil {
			return nil, fault.Invalid(field, "is not a valid text")
		}
		return text(field, said)
	case '[':
		if !agentic {
			return nil, fault.Invalid(field, "must be a text: the session is not agentic")
		}
		var all []jsontext.Value
		if err := json.Unmarshal(s.Completion, &all); err != nil {
			return nil, fault.Invalid(field, "is not a list of messages")
		}
		return messages(field, all)
	case jsontext.KindInvalid:
		return nil, fault.Invalid(field, "is required")
	default:
		return nil, fault.Invalid(field, "must be a text, or a list of messages in an agentic session")
	}
}

// text returns a text as JSON in its one form.
func text(field, s string) (jsontext.Value, error) {
	v, err := json.Marshal(s)
	if err != nil {
		return nil, fault.Invalid(field, "is not a valid text")
	}
	return v, nil
}

// messages returns messages as compact JSON.
func messages(field string, all []jsontext.Value) (jsontext.Value, error) {
	if len(all) == 0 || len(all) > maxTurns {
		return nil, fault.Invalid(field, fmt.Sprintf("must be 1 to %d messages", maxTurns))
	}
	for i, m := range all {
		if roleOf(m) == "" {
			return nil, fault.Invalid(fmt.Sprintf("%s[%d]", field, i), "must be a message with a role")
		}
	}
	v, err := json.Marshal(all)
	if err != nil {
		return nil, fault.Invalid(field, "is not valid JSON")
	}
	made := jsontext.Value(v)
	if err := made.Compact(); err != nil {
		return nil, fault.Invalid(field, "is not valid JSON")
	}
	return made, nil
}

// identify sets the digests. Equal texts have equal digests, whatever their formatting was.
func (i *item) identify() {
	i.prompt, i.completion = sha256.Sum256(i.Prompt), sha256.Sum256(i.Completion)
	h := sha256.New()
	h.Write(i.prompt[:])
	h.Write(i.completion[:])
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(i.Label))))
	h.Write([]byte(i.Label))
	i.content = digest(h.Sum(nil))
}

// subject returns what a judge is shown of a prompt and a completion, each as an item has it. A trajectory is a subject
// of several steps: each of the assistant's messages is the response of one.
func subject(prompt, completion jsontext.Value) (*judge.Subject, error) {
	given := []jsontext.Value{fmt.Appendf(nil, `{"role":%q,"content":%s}`, chat.RoleUser, prompt)}
	if prompt.Kind() != '"' {
		if err := json.Unmarshal(prompt, &given); err != nil {
			return nil, fmt.Errorf("read a prompt: %w", err)
		}
	}
	turns := []jsontext.Value{completion}
	if completion.Kind() != '"' {
		if err := json.Unmarshal(completion, &turns); err != nil {
			return nil, fmt.Errorf("read a trajectory: %w", err)
		}
	}
	made := &judge.Subject{}
	for _, t := range turns {
		if t.Kind() != '"' && roleOf(t) != chat.RoleAssistant {
			given = append(given, t)
			continue
		}
		if err := addStep(made, given, t); err != nil {
			return nil, err
		}
		given = []jsontext.Value{}
	}
	if len(given) > 0 { // it ends with what the model was given
		return made, addStep(made, given, nil)
	}
	return made, nil
}

func addStep(to *judge.Subject, given []jsontext.Value, response jsontext.Value) error {
	list, err := json.Marshal(given)
	if err != nil {
		return fmt.Errorf("write a step: %w", err)
	}
	to.Steps = append(to.Steps, judge.Step{Messages: list, Response: response})
	return nil
}

// roleOf returns the role of a message, or "".
func roleOf(message jsontext.Value) string {
	var turn struct {
		Role string `json:"role"`
	}
	if message.Kind() != '{' || json.Unmarshal(message, &turn) != nil {
		return ""
	}
	return turn.Role
}
