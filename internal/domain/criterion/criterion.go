// Package criterion keeps judges: what they are told, how often they are right by people's grades, and what of it is signed. A judge's
// certificate holds for one version of it and one set of grades, and is void when either changes.
package criterion

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
)

// A Criterion is a judge.
type Criterion struct {
	ID            string       `json:"id"`
	Object        string       `json:"object" enum:"criterion"`
	Name          string       `json:"name"`
	Rubric        string       `json:"rubric"`
	JudgeModel    string       `json:"judge_model" doc:"A model of the catalog"`
	Scale         judge.Scale  `json:"scale" enum:"binary,graded"`
	PassThreshold float64      `json:"pass_threshold" doc:"From which grade on a graded answer passes"`
	FewShot       bool         `json:"few_shot" doc:"The judge is shown graded examples, of the tuning half"`
	Shots         []string     `json:"few_shot_labels" nullable:"false" doc:"The labels that it is shown"`
	Filters       Filters      `json:"filters" doc:"Which exchanges it is for"`
	Version       int64        `json:"version" doc:"Counts the changes of what the judge is told"`
	Trust         trust.Tier   `json:"trust" enum:"none,provisional,measured,calibrated,certified"`
	CertificateID *string      `json:"certificate_id" doc:"The last certificate, void or not"`
	Labels        label.Counts `json:"labels"`
	Monitoring    *Watch       `json:"monitoring"`
	CreatedAt     clock.Time   `json:"created_at"`
	UpdatedAt     clock.Time   `json:"updated_at"`
}

// Filters are those of the logs.
type Filters = logbook.Selection

// A Definition is what somebody says of a judge. In a change, what is omitted stays.
type Definition struct {
	Name          *string      `json:"name,omitempty" doc:"1 to 64 characters that can be seen"`
	Rubric        *string      `json:"rubric,omitempty" doc:"What makes an answer pass"`
	JudgeModel    *string      `json:"judge_model,omitempty" doc:"A model of the catalog; no alias"`
	Scale         *judge.Scale `json:"scale,omitempty" enum:"binary,graded" doc:"binary by default"`
	PassThreshold *float64     `json:"pass_threshold,omitempty" doc:"0.5 by default"`
	FewShot       *bool        `json:"few_shot,omitempty" doc:"false by default: show the judge graded examples of the tuning half. They are chosen when it is calibrated"`
	Filters       *Filters     `json:"filters,omitempty" doc:"Which exchanges it is for, as in the list of logs"`
}

// Models tell which models there are to judge with.
type Models interface {
	// Chats refuses what is no chat model of the catalog that the workspace may call, naming the field.
	Chats(ws tenant.ID, field, model string) error
}

// apply puts d over c.
func (d *Definition) apply(c *Criterion) {
	set(&c.Name, d.Name)
	set(&c.Rubric, d.Rubric)
	set(&c.JudgeModel, d.JudgeModel)
	set(&c.Scale, d.Scale)
	set(&c.PassThreshold, d.PassThreshold)
	set(&c.FewShot, d.FewShot)
	set(&c.Filters, d.Filters)
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
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
	brief := c.brief(nil)
	if err := brief.Check(); err != nil {
		return err
	}
	return c.Filters.Check("filters.")
}

// told is what a judge is told, and so what a version is of.
type told struct {
	rubric, model string
	scale         judge.Scale
	threshold     float64
	shown         bool
	shots         string
}

func (k *kept) told() told {
	return told{k.Rubric, k.JudgeModel, k.Scale, k.PassThreshold, k.FewShot, k.Shots}
}

// brief is what the judge is told, with the shots.
func (c *Criterion) brief(shots []judge.Shot) *judge.Brief {
	return &judge.Brief{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold, Shots: shots}
}

// A shot is a label that the judge is shown, as it stood when it was chosen.
type shot struct {
	LabelID  string        `json:"label_id"`
	Item     []byte        `json:"item"`
	Verdict  judge.Verdict `json:"verdict"`
	Grade    *float64      `json:"grade"`
	Critique string        `json:"critique"`
}

// eachClass is how many shots there are of either verdict.
const eachClass = 3

func shotsText(all []shot) string {
	if len(all) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(all) // of texts and numbers
	return string(text)
}

func parseShots(text string) (all []shot, err error) {
	err = json.Unmarshal([]byte(text), &all)
	return all, err
}

func shotLabels(all []shot) []string {
	names := make([]string, 0, len(all))
	for _, s := range all {
		names = append(names, s.LabelID)
	}
	slices.Sort(names)
	return names
}
