package reward

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
)

// The defaults of an anchor, and the fewest completions of a check that somebody asks for.
const (
	defaultSample = 64
	defaultEvery  = 256
	minSample     = 8
)

// Models knows the models that can judge.
type Models interface {
	criterion.Models
	// Upstream identifies what a workspace's id of a model stands for: ids with the same result are the same model.
	Upstream(ws tenant.ID, model string) string
}

// A pinnedAnchor is what a session keeps of its anchor's certificate.
type pinnedAnchor struct {
	Judge  Judge       `json:"judge"`
	Common stat.Common `json:"common"`
	Gap    float64     `json:"gap"` // that a healthy run can show
}

// A process is the e-process of a session since its creation or the last release.
type process struct {
	stat.Watch
	Begins  int64 `json:"begins"`  // items up to this position belong to an earlier process
	From    int64 `json:"from"`    // items up to this position are not drawn by the next check by count
	Nothing bool  `json:"nothing"` // the last check by count had nothing to draw
}

// pinned returns what is pinned of the anchor. It is nil without an anchor.
func (r *session) pinned() (*pinnedAnchor, error) {
	if r.AnchorCriterionID == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	var p pinnedAnchor
	if err := json.Unmarshal([]byte(r.Anchor), &p); err != nil {
		return nil, fmt.Errorf("read the anchor of %s: %w", r.ID, err)
	}
	return &p, nil
}

// process returns the evidence so far. A session without checks begins with none.
func (r *session) process() (p process, err error) {
	if r.Evidence == "" {
		a, err := r.pinned()
		if err == nil && a != nil {
			p.Watch = stat.NewWatch(a.Gap)
		}
		return p, err
	}
	if err := json.Unmarshal([]byte(r.Evidence), &p); err != nil {
		return p, fmt.Errorf("read the evidence of %s: %w", r.ID, err)
	}
	return p, nil
}

// encoded returns a pinned anchor or a process as the table has it.
func encoded(v any) (string, error) {
	made, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("write what is known of an anchor: %w", err)
	}
	return string(made), nil
}

// everyJudge returns the judges of a session, and the anchor's.
func (r *session) everyJudge() ([]Judge, error) {
	a, err := r.pinned()
	if err != nil || a == nil {
		return r.Judges, err
	}
	return append(slices.Clone(r.Judges), a.Judge), nil
}

// checkAnchor pins an anchor in a session that is about to be made, whose judges are pinned.
func (s *Store) checkAnchor(ctx context.Context, in db.Scoped, ws tenant.ID, r *session, n *NewAnchor) error {
	r.AnchorCriterionID, r.Process = n.CriterionID, 1
	r.SampleSize = cmp.Or(n.SampleSize, defaultSample)
	r.Every = cmp.Or(n.Every, max(defaultEvery, r.SampleSize))
	if r.Every < r.SampleSize {
		return fault.Invalid("anchor.every", "must be at least sample_size: a check draws from what was scored since")
	}
	dependent, err := s.pinAnchor(ctx, in, ws, r)
	if dependent != "" {
		return fault.Invalid("anchor.criterion_id", dependent)
	}
	return err
}

// pinAnchor pins the certificate of a session's anchor, and the gap that it explains. dependent says why the anchor is
// not independent of the session's judges; it is refused when its proof is not there.
func (s *Store) pinAnchor(ctx context.Context, in db.Scoped, ws tenant.ID, r *session) (dependent string, _ error) {
	const field = "anchor.criterion_id"
	c, err := criterion.Find(ctx, in, r.AnchorCriterionID)
	if err != nil {
		return "", err
	}
	if dependent, err = s.dependence(ctx, in, ws, r, c); dependent != "" || err != nil {
		return dependent, err
	}
	a := pinnedAnchor{Judge: Judge{CriterionID: c.ID, Weight: 1}}
	if err := s.pin(ctx, in, ws, &a.Judge, field); err != nil {
		return "", err
	}
	if err := certified(c, &a.Judge.Certificate, trust.Calibrated); err != nil {
		return "", err
	}
	if a.Common, err = r.common(ctx, in, &a.Judge.Certificate); err != nil {
		return "", err
	}
	if err := proves(a.Common, c); err != nil {
		return "", err
	}
	a.Gap = a.Common.Gap()
	r.Anchor, err = encoded(a)
	return "", err
}

// dependence says why an anchor is not independent of the judges of a session, or returns "".
func (s *Store) dependence(
	ctx context.Context, in db.Scoped, ws tenant.ID, r *session, anchor *criterion.Record,
) (string, error) {
	for i := range r.Judges {
		if r.Judges[i].CriterionID == anchor.ID {
			return "is a judge of the reward: the anchor must be another criterion", nil
		}
		c, err := criterion.Find(ctx, in, r.Judges[i].CriterionID)
		if err != nil {
			return "", err
		}
		if c.JudgeModel == anchor.JudgeModel ||
			s.Models.Upstream(ws, c.JudgeModel) == s.Models.Upstream(ws, anchor.JudgeModel) {
			return fmt.Sprintf("has the judge model %s, which is that of the criterion %q too: the anchor needs another",
				anchor.JudgeModel, c.Name), nil
		}
	}
	return "", nil
}

// proves refuses an anchor whose calibration and those of the reward's judges do not show how they differ.
func proves(c stat.Common, anchor *criterion.Record) error {
	switch {
	case !c.Enough():
		return fault.Precondition.New("the calibrations of the anchor %q and of the reward's judges share %d items that "+
			"people pass and %d that people fail, and %d of each are needed: POST /v1/labels about the same exchanges for "+
			"all of these criteria, then calibrate each again", anchor.Name, c.Pass.Cases(), c.Fail.Cases(), stat.MinCommon)
	case c.Gap() >= 1:
		return fault.Precondition.New("the anchor %q and the reward's judges differ so much where people grade alike that "+
			"no run would ever be held: improve one of them, or choose another anchor", anchor.Name)
	}
	return nil
}

// A tally is what a check has found.
type tally struct {
	n, masked                  int64
	rewardPasses, anchorPasses int64
	onlyReward, onlyAnchor     int64
	failed                     int64 // of n: the anchor gave no verdict, which is a fail
}

// add counts a completion that has a reward.
func (t *tally) add(reward, anchor bool) {
	t.n++
	switch {
	case reward && anchor:
		t.rewardPasses++
		t.anchorPasses++
	case reward:
		t.rewardPasses++
		t.onlyReward++
	case anchor:
		t.anchorPasses++
		t.onlyAnchor++
	}
}

// anchorRate returns the share that the anchor passes, corrected for its errors where its certificate allows that.
func (t *tally) anchorRate(c *calibration.Certificate) (rate float64, interval stat.Interval, corrected bool) {
	if correction, refused := stat.Correctable(stat.Table(c.Matrix), trust.Confidence); refused == "" {
		if rate, interval, refused = correction.RoganGladen(t.anchorPasses, t.n); refused == "" {
			return rate, interval, true
		}
	}
	return float64(t.anchorPasses) / float64(t.n), stat.ClopperPearson(t.anchorPasses, t.n, trust.Confidence), false
}

// reason says in numbers why a session is held.
func (t *tally) reason(step string, checks int64, w *stat.Watch) string {
	percent := func(x float64) int64 { return int64(math.Round(100 * x)) }
	silent := ""
	if t.failed > 0 {
		silent = fmt.Sprintf(" (it gave no verdict on %d, which are its fails)", t.failed)
	}
	return fmt.Sprintf("the reward's judges pass %d %% of %d completions of step %s, and the anchor passes %d %%%s; "+
		"their calibrations explain a difference of at most %d %%, and after %d checks the evidence that it is larger is "+
		"%.1f, where %.0f holds", percent(share(t.rewardPasses, t.n)), t.n, step, percent(share(t.anchorPasses, t.n)),
		silent, percent(w.Regular.Gap), checks, w.Evidence(), stat.HoldsFrom)
}

func share(x, n int64) float64 { return float64(x) / float64(n) }
