package reward

import (
	"context"
	"fmt"

	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/store/db"
)

// common compares the judges of a session with an anchor on the items that all of their certificates were measured by.
// What people say of an item is combined as what the judges say of it; it must be the same as for the anchor. An item
// that the anchor gave no verdict of is counted apart.
func (r *session) common(
	ctx context.Context, in db.Scoped, anchor *calibration.Certificate,
) (c stat.Common, err error) {
	if c.Asked, c.Failed, err = anchor.Answers(ctx, in); err != nil {
		return c, err
	}
	known := map[string]*commonItem{}
	for i, err := range anchor.Measured(ctx, in) {
		if err != nil {
			return c, fmt.Errorf("read what the anchor was measured by: %w", err)
		}
		known[string(i.Item)] = &commonItem{anchor: verdicts{i.Human, i.Judge}}
	}
	for at := range r.Judges {
		for i, err := range r.Judges[at].Certificate.Measured(ctx, in) {
			if err != nil {
				return c, fmt.Errorf("read what a judge was measured by: %w", err)
			}
			if item := known[string(i.Item)]; item != nil && i.Judge != "" {
				item.add(i)
			}
		}
	}
	for _, item := range known {
		item.count(r, &c)
	}
	return c, nil
}

// verdicts are those of people and of a judge.
type verdicts struct{ human, judge judge.Verdict }

// A commonItem is an item that the anchor was measured by, with what is known of it by the session's judges, in their
// order.
type commonItem struct {
	anchor        verdicts
	humans, given []judging.Answer
}

func (i *commonItem) add(m calibration.MeasuredItem) {
	human := judge.Assessment{Verdict: m.Human}
	if m.Human == judge.Pass {
		human.Grade = 1
	}
	i.humans = append(i.humans, judging.Answer{Assessment: human})
	i.given = append(i.given, judging.Answer{Assessment: judge.Assessment{Verdict: m.Judge, Grade: m.Grade}})
}

// count counts an item of all judges of r, if people say the same of it for all of them together as for the anchor.
func (i *commonItem) count(r *session, c *stat.Common) {
	if len(i.given) != len(r.Judges) {
		return
	}
	truth, reward := combine(r.Mode, r.Judges, i.humans).Verdict, combine(r.Mode, r.Judges, i.given).Verdict
	if truth != i.anchor.human {
		return
	}
	of := map[judge.Verdict]*stat.Pairs{judge.Pass: &c.Pass, judge.Fail: &c.Fail}
	if i.anchor.judge == "" {
		of = map[judge.Verdict]*stat.Pairs{judge.Pass: &c.PassUnanswered, judge.Fail: &c.FailUnanswered}
	}
	of[truth].Add(reward == judge.Pass, i.anchor.judge == judge.Pass)
}
