package calibration

import (
	"cmp"
	"math"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
)

// A Report compares the last calibration with the labels as they are after adjudication. It asks no judge.
type Report struct {
	CriterionID             string             `json:"criterion_id"`
	AlignedAt               clock.Time         `json:"aligned_at" doc:"When the calibration was measured"`
	Before                  trust.Block        `json:"before" doc:"As measured"`
	After                   trust.Block        `json:"after" doc:"What a re-calibration would read: label errors corrected, ambiguous and deleted labels withdrawn"`
	Adjudicated             int64              `json:"adjudicated"`
	ByKind                  ByKind             `json:"by_kind"`
	Adjudications           []AdjudicatedLabel `json:"adjudications" nullable:"false"`
	RemainingDisagreements  int64              `json:"remaining_disagreements"`
	Remaining               []Remaining        `json:"remaining" nullable:"false" doc:"The dominant direction first, then what the judge was surest of"`
	Concentration           []Direction        `json:"concentration" nullable:"false" doc:"Of what remains"`
	CertificateVoided       bool               `json:"certificate_voided" doc:"A correction or a withdrawal has changed what the certificate measured"`
	AgreementsToReview      []LabelToReview    `json:"agreements_to_review" nullable:"false" doc:"A blind random sample of labels that the judge agrees with, as large as what was adjudicated: to look at disagreements alone flatters a judge"`
	AfterIsDisagreementOnly bool               `json:"after_is_disagreement_only" doc:"The sample of agreements is not graded yet"`
	Ties                    int64              `json:"ties" doc:"Items over which people are evenly split now: a calibration leaves them out"`
	Tied                    []LabelToReview    `json:"tied" nullable:"false" doc:"Of each tie the earliest label: to rule on it settles the item; at most 200"`
}

// ByKind counts adjudications. A confirmed label is not counted.
type ByKind struct {
	LabelError int64 `json:"label_error"`
	JudgeError int64 `json:"judge_error"`
	Ambiguous  int64 `json:"ambiguous"`
}

func (b *ByKind) add(kind label.Kind) {
	switch kind {
	case label.LabelError:
		b.LabelError++
	case label.JudgeError:
		b.JudgeError++
	case label.Ambiguous:
		b.Ambiguous++
	case label.Confirmed:
	}
}

func (b *ByKind) total() int64 { return b.LabelError + b.JudgeError + b.Ambiguous }

// An AdjudicatedLabel is a label that was adjudicated.
type AdjudicatedLabel struct {
	LabelID            string         `json:"label_id"`
	RequestID          *string        `json:"request_id"`
	Kind               label.Kind     `json:"kind" enum:"label_error,judge_error,ambiguous,confirmed"`
	OriginalVerdict    judge.Verdict  `json:"original_verdict" enum:"pass,fail"`
	AdjudicatedVerdict *judge.Verdict `json:"adjudicated_verdict" enum:"pass,fail"`
	Note               string         `json:"note"`
	AdjudicatedAt      clock.Time     `json:"adjudicated_at"`
}

// SchemaName is the type's name in the OpenAPI document.
func (AdjudicatedLabel) SchemaName() string { return "Ruled" }

// A Remaining is a disagreement that is not adjudicated yet.
type Remaining struct {
	LabelID      string        `json:"label_id" doc:"POST /v1/labels/{label_id}/adjudication rules on it"`
	RequestID    *string       `json:"request_id"`
	JudgeVerdict judge.Verdict `json:"judge_verdict" enum:"pass,fail"`
	HumanVerdict judge.Verdict `json:"human_verdict" enum:"pass,fail"`
	Critique     string        `json:"critique" doc:"The judge's"`
	JudgeGrade   float64       `json:"judge_grade"`
	Direction    string        `json:"direction" enum:"fp,fn"`
	InReportHalf bool          `json:"in_report_half"`
}

// A Direction counts the judge's errors of one kind: false positives or false negatives.
type Direction struct {
	Direction     string  `json:"direction" enum:"fp,fn"`
	Count         int64   `json:"count"`
	ShareOfErrors float64 `json:"share_of_errors"`
}

// A LabelToReview is a label to be graded again by a person who does not know its grade.
type LabelToReview struct {
	LabelID   string  `json:"label_id" doc:"GET /v1/labels/{label_id}?blind=true shows what to grade"`
	RequestID *string `json:"request_id"`
}

// SchemaName is the type's name in the OpenAPI document.
func (LabelToReview) SchemaName() string { return "Unseen" }

// direction names the error of a judge that gave this verdict and is wrong.
func direction(judged judge.Verdict) string {
	if judged == judge.Pass {
		return "fp"
	}
	return "fn"
}

// Order sorts disagreements: those of the more frequent direction first, then by how sure the judge was, which is the
// distance of its grade from the threshold. It returns the directions, the more frequent first.
func Order(remaining []Remaining, threshold float64) []Direction {
	counts := map[string]int64{}
	for i := range remaining {
		remaining[i].Direction = direction(remaining[i].JudgeVerdict)
		counts[remaining[i].Direction]++
	}
	directions := []Direction{}
	for _, name := range []string{"fp", "fn"} {
		if n := counts[name]; n > 0 {
			directions = append(directions, Direction{
				Direction: name, Count: n,
				ShareOfErrors: float64(n) / float64(len(remaining)),
			})
		}
	}
	slices.SortStableFunc(directions, func(a, b Direction) int { return cmp.Compare(b.Count, a.Count) })
	certainty := func(r *Remaining) float64 { return math.Abs(r.JudgeGrade - threshold) }
	slices.SortFunc(remaining, func(a, b Remaining) int {
		if a.Direction != b.Direction {
			if a.Direction == directions[0].Direction {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(certainty(&b), certainty(&a)), cmp.Compare(a.LabelID, b.LabelID))
	})
	return directions
}
