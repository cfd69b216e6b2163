package monitor

import (
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/job"
)

// A Sample says which logged exchanges are scanned.
type Sample struct {
	Size    int                `json:"sample_size,omitempty" default:"200" minimum:"1" maximum:"5000" doc:"How many exchanges, drawn at random"`
	Filters *criterion.Filters `json:"filters,omitempty" doc:"From which; those of the criterion by default"`
}

// withDefaults fills in the size.
func (s Sample) withDefaults() Sample {
	if s.Size == 0 {
		s.Size = 200
	}
	return s
}

// A Scan judges a sample of logged exchanges.
type Scan struct {
	ID          string            `json:"id"`
	Object      string            `json:"object" enum:"scan"`
	CriterionID string            `json:"criterion_id"`
	Version     int64             `json:"criterion_version"`
	SampleSize  int               `json:"sample_size"`
	Filters     criterion.Filters `json:"filters"`
	Pool        int               `json:"pool" doc:"How many exchanges the sample was drawn from, at most the 100,000 newest that match"`
	Result      *Rates            `json:"result" doc:"null until it is done"`
	CreatedBy   tenant.UserID     `json:"created_by"`
	job.Job
}

// Rates are the pass rates that a judge found in traffic: as it found them, and corrected for its known errors.
type Rates struct {
	N            int64          `json:"n" doc:"Verdicts"`
	Passes       int64          `json:"passes"`
	Failed       int64          `json:"failed" doc:"Exchanges without a verdict: the judge failed, or the exchange was gone"`
	Rate         *float64       `json:"rate" doc:"As the judge says"`
	RateCI       *stat.Interval `json:"rate_ci" doc:"At 95 %, Wilson: of the judge's own rate, not of the truth"`
	Corrected    *float64       `json:"corrected_rate" doc:"Corrected for the errors that the judge's certificate tells of (Rogan–Gladen)"`
	CorrectedCI  *stat.Interval `json:"corrected_rate_ci" doc:"At 95 %, Lang–Reiczigel: with the sampling error of the calibration"`
	NotCorrected *string        `json:"not_corrected" enum:"no_verdicts,no_certificate,certificate_void,few_labels,judge_not_proven,contradicted" doc:"Why it is not corrected"`
	Certificate  *string        `json:"certificate_id" doc:"By which it was corrected"`
	Failing      []Failing      `json:"failing_examples" nullable:"false" doc:"Some of what failed; the rows have all"`
}

// A Failing is an exchange that the judge fails.
type Failing struct {
	LogID     string  `json:"log_id"`
	RequestID *string `json:"request_id"`
	Grade     float64 `json:"grade"`
	Critique  string  `json:"critique"`
}

// A Judged is what a judge said of a logged exchange.
type Judged struct {
	LogID     string         `json:"log_id"`
	RequestID *string        `json:"request_id"`
	Verdict   *judge.Verdict `json:"verdict" enum:"pass,fail" doc:"null without one"`
	Grade     *float64       `json:"grade"`
	Critique  string         `json:"critique"`
	Failure   *string        `json:"failure" doc:"Why there is no verdict"`
}

// scanRequest is a scan's sample as it is stored.
type scanRequest struct {
	Size    int               `json:"sample_size"`
	Filters criterion.Filters `json:"filters"`
	Pool    int               `json:"pool"`
	MaxCost *money.Nano       `json:"max_cost_usd,omitempty"`
}

// scans is the kind of the tasks and jobs of scans.
var scans = judging.Kind{Name: "scan", Prefix: "scan"}

func newScan(t *judging.Task) (Scan, error) {
	s := Scan{
		ID: t.ID, Object: "scan", CriterionID: t.CriterionID, Version: t.Version, CreatedBy: t.CreatedBy,
		Job: t.Job,
	}
	var request scanRequest
	var result Rates
	if err := t.Decode(&request, &result); err != nil {
		return s, err
	}
	s.SampleSize, s.Filters, s.Pool = request.Size, request.Filters, request.Pool
	if t.Result != "" {
		s.Result = &result
	}
	return s, nil
}

// checkVersion refuses to continue a scan whose criterion has changed.
func checkVersion(t *judging.Task, now int64) error {
	if now != t.Version {
		return fault.Conflict("the criterion has changed meanwhile: version %d is now %d", t.Version, now)
	}
	return nil
}

// rates computes the rates of x passes among n verdicts of a version of a judge. They are corrected if the criterion's
// last certificate is valid, is for that version, and proves enough.
func rates(certificate *calibration.Certificate, version, x, n int64) Rates {
	r := Rates{N: n, Passes: x, Failing: []Failing{}}
	if n > 0 {
		p, ci := float64(x)/float64(n), stat.Wilson(x, n, trust.Confidence)
		r.Rate, r.RateCI = &p, &ci
	}
	notCorrected := func(reason string) Rates {
		r.NotCorrected = &reason
		return r
	}
	switch {
	case certificate == nil:
		return notCorrected("no_certificate")
	case certificate.Voided || certificate.Version != version:
		return notCorrected("certificate_void")
	}
	correction, refusal := stat.Correctable(stat.Table(certificate.Matrix), trust.Confidence)
	if refusal != "" {
		return notCorrected(string(refusal))
	}
	rate, interval, refusal := correction.RoganGladen(x, n)
	if refusal != "" {
		return notCorrected(string(refusal))
	}
	r.Corrected, r.CorrectedCI, r.Certificate = &rate, &interval, &certificate.ID
	return r
}
