package criterion

import (
	"cmp"
	"math"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
)

// A Report re-reads a calibration against what was adjudicated since. It asks no judge.
type Report struct {
	CriterionID             string      `json:"criterion_id"`
	AlignedAt               clock.Time  `json:"aligned_at" doc:"When the calibration was measured"`
	Before                  trust.Block `json:"before" doc:"As measured"`
	After                   trust.Block `json:"after" doc:"What a re-calibration would read: label errors corrected, ambiguous and deleted labels withdrawn"`
	Adjudicated             int64       `json:"adjudicated"`
	ByKind                  ByKind      `json:"by_kind"`
	Adjudications           []Ruled     `json:"adjudications" nullable:"false"`
	RemainingDisagreements  int64       `json:"remaining_disagreements"`
	Remaining               []Remaining `json:"remaining" nullable:"false" doc:"The dominant direction first, then what the judge was surest of"`
	Concentration           []Direction `json:"concentration" nullable:"false" doc:"Of what remains"`
	CertificateVoided       bool        `json:"certificate_voided" doc:"A correction or a withdrawal has changed what the certificate measured"`
	AgreementsToReview      []Unseen    `json:"agreements_to_review" nullable:"false" doc:"A blind random sample of labels that the judge agrees with, as large as what was adjudicated: to look at disagreements alone flatters a judge"`
	AfterIsDisagreementOnly bool        `json:"after_is_disagreement_only" doc:"The sample of agreements is not graded yet"`
}

// ByKind counts adjudications.
type ByKind struct {
	LabelError int64 `json:"label_error"`
	JudgeError int64 `json:"judge_error"`
	Ambiguous  int64 `json:"ambiguous"`
}

// A Ruled is a label that was adjudicated.
type Ruled struct {
	LabelID            string         `json:"label_id"`
	RequestID          *string        `json:"request_id"`
	Kind               label.Kind     `json:"kind" enum:"label_error,judge_error,ambiguous,confirmed"`
	OriginalVerdict    judge.Verdict  `json:"original_verdict" enum:"pass,fail"`
	AdjudicatedVerdict *judge.Verdict `json:"adjudicated_verdict" enum:"pass,fail"`
	Note               string         `json:"note"`
	AdjudicatedAt      clock.Time     `json:"adjudicated_at"`
}

// A Remaining is a disagreement that nobody has ruled on.
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

// A Direction is how a judge errs.
type Direction struct {
	Direction     string  `json:"direction" enum:"fp,fn"`
	Count         int64   `json:"count"`
	ShareOfErrors float64 `json:"share_of_errors"`
}

// An Unseen is a label to be graded again, by whoever does not know its grade.
type Unseen struct {
	LabelID   string  `json:"label_id" doc:"GET /v1/labels/{label_id}?blind=true shows what to grade"`
	RequestID *string `json:"request_id"`
}

// direction names a disagreement.
func direction(judged judge.Verdict) string {
	if judged == judge.Pass {
		return "fp"
	}
	return "fn"
}

// Order sorts what remains: the direction that most are of first, then by how sure the judge was, which is how far its grade is from
// the threshold. It returns how the errors are spread.
func Order(remaining []Remaining, threshold float64) []Direction {
	counts := map[string]int64{}
	for i := range remaining {
		remaining[i].Direction = direction(remaining[i].JudgeVerdict)
		counts[remaining[i].Direction]++
	}
	spread := []Direction{}
	for _, name := range []string{"fp", "fn"} {
		if n := counts[name]; n > 0 {
			spread = append(spread, Direction{Direction: name, Count: n, ShareOfErrors: float64(n) / float64(len(remaining))})
		}
	}
	slices.SortStableFunc(spread, func(a, b Direction) int { return cmp.Compare(b.Count, a.Count) })
	sure := func(r *Remaining) float64 { return math.Abs(r.JudgeGrade - threshold) }
	slices.SortFunc(remaining, func(a, b Remaining) int {
		if a.Direction != b.Direction {
			if a.Direction == spread[0].Direction {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(sure(&b), sure(&a)), cmp.Compare(a.LabelID, b.LabelID))
	})
	return spread
}
