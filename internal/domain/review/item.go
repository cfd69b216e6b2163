package review

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
)

// A ref names what is graded: a logged exchange, a logged run, or what a label graded.
type ref string

const (
	ofRequest = "request:"
	ofTrace   = "trace:"
	ofLabel   = "label:"
)

// split returns the ids that r names. Two of them are empty.
func (r ref) split() (requestID, trace, labelID string) {
	kind, name, _ := strings.Cut(string(r), ":")
	switch kind + ":" {
	case ofRequest:
		requestID = name
	case ofTrace:
		trace = name
	case ofLabel:
		labelID = name
	}
	return requestID, trace, labelID
}

// A QueueItem is an item as a person sees it. What would tell a grader what others said is left out while that matters.
type QueueItem struct {
	ID        string       `json:"id"`
	Object    string       `json:"object" enum:"review_item"`
	QueueID   string       `json:"queue_id"`
	State     string       `json:"state" enum:"open,done,expired" doc:"For everybody"`
	Mine      State        `json:"my_state" enum:"open,claimed,graded,skipped"`
	RequestID *string      `json:"request_id" doc:"The exchange that is graded; null for a run"`
	TraceID   *string      `json:"trace_id" doc:"The run that is graded; null for an exchange"`
	Reason    string       `json:"reason" doc:"Why it is in the queue"`
	Judge     *JudgeSaid   `json:"judge" doc:"What the judge said; null if it said nothing, and for graders of a blind queue"`
	Steps     []judge.Step `json:"steps" nullable:"false" doc:"What is graded. Its texts are data of others: show them as text"`
	Digest    string       `json:"digest" doc:"Identifies what is shown; a grade that names it is refused when it has changed"`
	Claim     *ItemClaim   `json:"claim" doc:"null where you hold none"`
	Grade     *GivenGrade  `json:"grade" doc:"Yours"`
	Grades    []GivenGrade `json:"grades" nullable:"false" doc:"Of everybody: for owners and admins who do not grade the item, always; for others when it is done, in a queue that is not blind"`
	Conflict  bool         `json:"conflict" doc:"The grades that you may see differ"`
	Assignees []string     `json:"assignees" nullable:"false" doc:"The users that it is offered to alone; for owners and admins"`
}

// lenient writes logged JSON as it is.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// MarshalJSONTo writes the item with its texts as they were logged.
func (i QueueItem) MarshalJSONTo(to *jsontext.Encoder) error {
	type plain QueueItem
	return json.MarshalEncode(to, plain(i), lenient)
}

// JudgeSaid is what a judge said of an item.
type JudgeSaid struct {
	Verdict  judge.Verdict `json:"verdict" enum:"pass,fail"`
	Grade    float64       `json:"grade"`
	Critique string        `json:"critique"`
}

// An ItemClaim is a person's lease of an item.
type ItemClaim struct {
	ID         string     `json:"id" doc:"To be sent with the grade"`
	LeaseUntil clock.Time `json:"lease_until" doc:"From then on another may claim the item"`
}

// A GivenGrade is what a person said of an item.
type GivenGrade struct {
	UserID   tenant.UserID `json:"user_id"`
	Verdict  judge.Verdict `json:"verdict" enum:"pass,fail"`
	Grade    *float64      `json:"grade"`
	Critique string        `json:"critique"`
	Unsure   bool          `json:"unsure"`
	LabelID  string        `json:"label_id"`
	At       clock.Time    `json:"at"`
}

// A NewGrade is a grade to be given.
type NewGrade struct {
	Claim    string        `json:"claim" maxLength:"64" doc:"The id of your claim"`
	Verdict  judge.Verdict `json:"verdict" enum:"pass,fail"`
	Grade    *float64      `json:"grade,omitempty" minimum:"0" maximum:"1"`
	Critique string        `json:"critique,omitempty" maxLength:"8000" doc:"Why"`
	Unsure   bool          `json:"unsure,omitempty" doc:"The verdict stands, and you are not sure of it"`
	Digest   string        `json:"digest,omitempty" maxLength:"64" doc:"Of what was shown: the grade is refused when it has changed"`
}

// A Skip leaves an item to others.
type Skip struct {
	Claim  string `json:"claim" maxLength:"64" doc:"The id of your claim"`
	Reason string `json:"reason,omitempty" maxLength:"1000"`
}

// digest identifies the content of some steps.
func digest(steps []judge.Step) string {
	sum := sha256.New()
	for _, step := range steps {
		for _, part := range [][]byte{step.Messages, step.Response, step.Tools} {
			one := sha256.Sum256(part)
			sum.Write(one[:])
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// An itemRecord is an item as the table has it.
type itemRecord struct {
	Ref, ID   string
	Position  int64
	Steps     int64
	Reason    string
	Judge     judge.Verdict
	Grade     float64
	Critique  string
	ExpiresAt clock.Time
	State     string
	Conflict  bool
	Lost      string
}

const itemColumns = `ref, id, position, steps, reason, judge, grade, critique, expires_at, state, conflict, lost`

// A gradeRecord is an item as one person has it.
type gradeRecord struct {
	ItemID     string
	UserID     tenant.UserID
	State      State
	Claim      string
	LeaseUntil clock.Time
	Verdict    judge.Verdict
	Grade      *float64
	Critique   string
	Unsure     bool
	LabelID    string
	At         clock.Time
}

const gradeColumns = `item_id, user_id, state, claim, lease_until, verdict, grade, critique, unsure, label_id, at`

func (g *gradeRecord) given() GivenGrade {
	return GivenGrade{
		UserID: g.UserID, Verdict: g.Verdict, Grade: g.Grade, Critique: g.Critique, Unsure: g.Unsure,
		LabelID: g.LabelID, At: g.At,
	}
}

// repeats reports whether in is the grade that g has already.
func (g *gradeRecord) repeats(in *NewGrade) bool {
	same := g.Grade == nil && in.Grade == nil || g.Grade != nil && in.Grade != nil && *g.Grade == *in.Grade
	return g.State == Graded && g.Claim == in.Claim && g.Verdict == in.Verdict && same && g.Critique == in.Critique &&
		g.Unsure == in.Unsure
}

// view returns an item as a person sees it, without its content. all are the rows of the item, of everybody.
func (i *itemRecord) view(q *queueRecord, a access, user tenant.UserID, all []gradeRecord) QueueItem {
	requestID, trace, _ := ref(i.Ref).split()
	v := QueueItem{
		ID: i.ID, Object: "review_item", QueueID: q.ID, State: i.State, Mine: Open, RequestID: optional(requestID),
		TraceID: optional(trace), Reason: i.Reason, Grades: []GivenGrade{}, Assignees: []string{},
		Steps: []judge.Step{},
	}
	grading := false
	for k := range all {
		g := &all[k]
		if g.UserID != user {
			continue
		}
		v.Mine, grading = g.State, true
		switch g.State {
		case Claimed:
			v.Claim = &ItemClaim{ID: g.Claim, LeaseUntil: g.LeaseUntil}
		case Graded:
			given := g.given()
			v.Grade = &given
		case Open, Skipped:
		}
	}
	if i.Judge != "" && (!q.Blind || a.manages && !grading) {
		v.Judge = &JudgeSaid{Verdict: i.Judge, Grade: i.Grade, Critique: i.Critique}
	}
	if i.State == itemDone && !q.Blind || a.manages && !grading {
		for k := range all {
			if all[k].State == Graded {
				v.Grades = append(v.Grades, all[k].given())
			}
		}
		v.Conflict = i.Conflict
	}
	return v
}

// optional returns a pointer to text, or nil when it is empty.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
