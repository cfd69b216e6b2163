// Package criterion keeps criteria. A criterion is a judge: a rubric, the model that applies it, and graded examples.
// Every change of what the model is told makes a new version of the criterion.
package criterion

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/text/redact"
)

// A Criterion is a judge.
type Criterion struct {
	ID            string           `json:"id"`
	Object        string           `json:"object" enum:"criterion"`
	Name          string           `json:"name"`
	Rubric        string           `json:"rubric"`
	JudgeModel    string           `json:"judge_model" doc:"A model of the catalog"`
	Scale         judge.Scale      `json:"scale" enum:"binary,graded"`
	PassThreshold float64          `json:"pass_threshold" doc:"From which grade on a graded answer passes"`
	FewShot       bool             `json:"few_shot" doc:"The judge is shown graded examples, of the tuning half"`
	Examples      []string         `json:"few_shot_labels" nullable:"false" doc:"The labels that it is shown"`
	Filters       Filters          `json:"filters" doc:"Which exchanges it is for"`
	Version       int64            `json:"version" doc:"Counts the changes of what the judge is told"`
	Trust         trust.Tier       `json:"trust" enum:"none,provisional,measured,calibrated,certified"`
	CertificateID *string          `json:"certificate_id" doc:"The last certificate, void or not"`
	Labels        label.Counts     `json:"labels"`
	Monitoring    *MonitorSettings `json:"monitoring"`
	CreatedAt     clock.Time       `json:"created_at"`
	UpdatedAt     clock.Time       `json:"updated_at"`
}

// Filters select logged exchanges.
type Filters = logbook.Selection

// A Definition is the part of a criterion that callers set. In a change, what is omitted stays.
type Definition struct {
	Name          *string      `json:"name,omitempty" doc:"1 to 64 characters that can be seen"`
	Rubric        *string      `json:"rubric,omitempty" doc:"What makes an answer pass"`
	JudgeModel    *string      `json:"judge_model,omitempty" doc:"A model of the catalog; no alias"`
	Scale         *judge.Scale `json:"scale,omitempty" enum:"binary,graded" doc:"binary by default"`
	PassThreshold *float64     `json:"pass_threshold,omitempty" doc:"0.5 by default"`
	FewShot       *bool        `json:"few_shot,omitempty" doc:"false by default: show the judge graded examples of the tuning half. They are chosen when it is calibrated"`
	Filters       *Filters     `json:"filters,omitempty" doc:"Which exchanges it is for, as in the list of logs"`
}

// MonitorSettings say how a judge monitors the traffic that is logged.
type MonitorSettings struct {
	Enabled       bool     `json:"enabled"`
	SamplePercent *float64 `json:"sample_percent,omitempty" minimum:"0.001" maximum:"100" doc:"How much of what matches is judged; 10 by default"`
	Filters       *Filters `json:"filters,omitempty" doc:"What is watched; the criterion's own filters by default"`
	AlertBelow    *float64 `json:"alert_below,omitempty" minimum:"0" maximum:"1" doc:"The pass rate, as the judge says, below which it raises an alarm"`
	WindowHours   int      `json:"window_hours,omitempty" minimum:"1" maximum:"720" doc:"How long is counted before it begins anew; 24 by default"`
	judging.Spending
}

// SchemaName is the type's name in the OpenAPI document.
func (MonitorSettings) SchemaName() string { return "Watch" }

// WithDefaults fills in what was left out, and leaves credentials out.
func (m MonitorSettings) WithDefaults() MonitorSettings {
	if m.Filters != nil {
		clean := m.Filters.Clean()
		m.Filters = &clean
	}
	if m.SamplePercent == nil {
		percent := 10.0
		m.SamplePercent = &percent
	}
	m.WindowHours = cmp.Or(m.WindowHours, 24)
	return m
}

// Check reports the first rule that m breaks.
func (m *MonitorSettings) Check() error {
	if m.Filters != nil {
		return m.Filters.Check("filters.")
	}
	return nil
}

// Models knows the models that can judge.
type Models interface {
	// Chats refuses a model that is not a chat model of the catalog which the workspace may call. The refusal names the
	// field.
	Chats(ws tenant.ID, field, model string) error
}

// apply sets the fields of c that d has, without the credentials in them.
func (d *Definition) apply(c *Criterion) {
	setText(&c.Name, d.Name)
	setText(&c.Rubric, d.Rubric)
	set(&c.JudgeModel, d.JudgeModel)
	set(&c.Scale, d.Scale)
	set(&c.PassThreshold, d.PassThreshold)
	set(&c.FewShot, d.FewShot)
	if d.Filters != nil {
		c.Filters = d.Filters.Clean()
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func setText(to, from *string) {
	if from != nil {
		*to = redact.String(*from)
	}
}

const maxName = 64

// check reports the first rule that c breaks, naming the field.
func (c *Criterion) check() error {
	switch n := utf8.RuneCountInString(c.Name); {
	case n < 1 || n > maxName:
		return fault.Invalid("name", "must be 1 to 64 characters")
	case strings.ContainsFunc(c.Name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return fault.Invalid("name", "must not contain control characters or others that cannot be seen")
	case c.JudgeModel == "":
		return fault.Invalid("judge_model", "is required")
	}
	told := judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
	if err := told.Check(); err != nil {
		return err
	}
	return c.Filters.Check("filters.")
}

// checkWithModel is check, and checks that the judge model can be called.
func (c *Criterion) checkWithModel(ws tenant.ID, models Models) error {
	if err := c.check(); err != nil {
		return err
	}
	return models.Chats(ws, "judge_model", c.JudgeModel)
}

// difference names the first part of what the judge is told that differs between two states of a criterion, or returns
// "".
func difference(a, b *Record) string {
	switch {
	case a.Rubric != b.Rubric:
		return "the rubric"
	case a.JudgeModel != b.JudgeModel:
		return "the judge model"
	case a.Scale != b.Scale:
		return "the scale"
	case a.PassThreshold != b.PassThreshold:
		return "the pass threshold"
	case a.FewShot != b.FewShot || a.Shots != b.Shots:
		return "the examples that the judge is shown"
	}
	return ""
}

// An example is a label that the judge is shown, as it was when it was chosen.
type example struct {
	LabelID  string        `json:"label_id"`
	Item     []byte        `json:"item"`
	Verdict  judge.Verdict `json:"verdict"`
	Grade    *float64      `json:"grade"`
	Critique string        `json:"critique"`
}

// ExamplesPerVerdict is how many examples of either verdict a judge is shown.
const ExamplesPerVerdict = 3

const noExamples = "[]"

func encodeExamples(all []example) string {
	if len(all) == 0 {
		return noExamples
	}
	text, _ := json.Marshal(all) // it has texts and numbers only
	return string(text)
}

func decodeExamples(text string) (all []example, err error) {
	err = json.Unmarshal([]byte(text), &all)
	return all, err
}

func exampleLabels(all []example) []string {
	ids := make([]string, 0, len(all))
	for _, e := range all {
		ids = append(ids, e.LabelID)
	}
	slices.Sort(ids)
	return ids
}
