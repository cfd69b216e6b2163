package canary

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/alias"
)

// An identity is what an epoch's evidence is about.
type identity struct {
	TargetModel, CanaryModel string
	CriterionID              string
	CriterionVersion         int64
	CertificateID            string // "" when none was issued for the version
}

// An epoch is the evidence about one identity.
type epoch struct {
	ID    string
	Alias string
	identity
	Youden    float64 // the lower bound of the judge's Se + Sp - 1
	FalsePass float64 // the upper bound of 1 - Sp
	Percents  percents

	Source  string // of the last draw that an earlier release took, which took one source after the other
	Seq     int64
	Cursors cursors // how far each source was taken
	Taken   int64   // draws, of all sources
	Entered int64   // of them, which are in the tally
	Tally   tally

	Spent       money.Nano
	Verdict     Verdict
	Automatic   bool   // the certificate allows to act
	Shown       string // an alias.GateReport
	StartedAt   clock.Time
	EvaluatedAt clock.Time
	DecidedAt   clock.Time // when Verdict became promote or roll_back
	ActedAt     clock.Time
	EndedAt     clock.Time
}

// decided returns the verdict that stays for the epoch, or "".
func (e *epoch) decided() Verdict {
	if e.DecidedAt == 0 {
		return ""
	}
	return e.Verdict
}

// settled reports whether the verdict stays as it was reached, whatever is set later: it was acted on, or the split has
// ended.
func (e *epoch) settled(splits bool) bool { return e.DecidedAt > 0 && (e.ActedAt > 0 || !splits) }

// percents are the canary's shares of the requests in the strata of an epoch.
type percents []int64

// last returns the share in the newest stratum.
func (p percents) last() int64 { return p[len(p)-1] }

// of returns the share in a stratum.
func (p percents) of(stratum int64) int {
	if stratum < 1 || stratum > int64(len(p)) {
		return 0
	}
	return int(p[stratum-1])
}

// Scan reads percents as the table has them.
func (p *percents) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("percents are kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), (*[]int64)(p))
}

// text returns percents as the table has them.
func (p percents) text() string {
	text, _ := json.Marshal([]int64(p)) // numbers only
	return string(text)
}

// stratum returns the number of the newest stratum.
func (e *epoch) stratum() int64 { return int64(len(e.Percents)) }

// enter adds a sample to the tally.
func (e *epoch) enter(s *sample) { e.Tally.add(s, e.Percents.of(s.Stratum), e.FalsePass) }

// A step is what a change of an alias or of its judge does to the epoch.
type step int

// The steps.
const (
	stay step = iota
	nextStratum
	nextEpoch
)

// maxStrata bounds the strata of an epoch: each costs time whenever the evidence is read, in a transaction that others
// wait for. One more change of the percent begins a new epoch.
const maxStrata = 100

// next returns the step from e, which may be nil, to what an alias is now. did says whether it split before: a person
// who begins to split again after a decision wants another one. An epoch without a key was begun by an earlier release,
// which counted repeated questions; it is ended.
func (e *epoch) next(is identity, a *alias.Alias, did bool) step {
	percent := int64(a.CanaryPercent)
	switch {
	case !a.Splits():
		return stay
	case e == nil, a.GateKey == "", e.identity != is, e.DecidedAt > 0 && !did:
		return nextEpoch
	case e.Percents.last() == percent:
		return stay
	case len(e.Percents) >= maxStrata:
		return nextEpoch
	}
	return nextStratum
}

// newEpoch begins an epoch of an alias.
func newEpoch(a *alias.Alias, is identity, j *judgeState, now clock.Time) *epoch {
	e := &epoch{
		ID: id.New("epoch"), Alias: a.Name, identity: is, FalsePass: j.falsePass,
		Percents: percents{int64(a.CanaryPercent)}, Verdict: Collecting, StartedAt: now, EvaluatedAt: now,
	}
	if j.certificate != nil {
		e.Youden, e.Automatic = j.certificate.Youden, j.certificate.automatic()
	}
	return e
}
