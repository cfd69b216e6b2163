package reward

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/store/db"
)

// checkIfDue begins a check when enough was scored since the last. It is called after items were stored, with their
// step, and does not wait for the check.
func (s *Store) checkIfDue(ctx context.Context, ws tenant.ID, id, step string) error {
	in := s.DB.In(ws)
	r, err := s.find(ctx, in, id)
	if err != nil || !r.due() {
		return err
	}
	if running, err := checking(ctx, in, id); running != nil || err != nil {
		return err // when it is done, the loop looks again
	}
	err = s.begin(ctx, ws, r, step, false)
	if errors.As(err, new(*fewPrompts)) || errors.Is(err, errChecking) {
		return nil
	}
	return err
}

// due reports whether a check by count is due.
func (r *session) due() bool {
	return r.AnchorCriterionID != "" && r.refusal() == nil && r.Scored-r.CheckedAtItem >= r.Every
}

// errChecking says that a check of the session is running.
var errChecking = fault.Conflict("a check of this session is running: wait for its result")

// fewPrompts says that there is too little to draw from for a check that somebody asks for.
type fewPrompts struct{ prompts int }

func (f *fewPrompts) Error() string {
	return fmt.Sprintf("there are completions of only %d prompts that have a reward and were not checked before, and %d "+
		"prompts are needed: nothing was checked", f.prompts, minSample)
}

// A pool is what a check draws from.
type pool struct {
	all  []candidate // in the order of scoring
	last int64       // the position of the last item that it was chosen from
}

// maxCandidates bounds the candidates of a check.
const maxCandidates = 20_000

// pool reads the items of this process that a check may draw: those of a step, or those since the last check by count.
// What has the content of an item that was drawn before is left out. Of more than maxCandidates every n-th is taken,
// beginning at random: a trainer cannot choose which.
func (s *Store) pool(
	ctx context.Context, in db.Scoped, r *session, step string, requested bool, random *rand.Rand,
) (*pool, error) {
	p, err := r.process()
	if err != nil {
		return nil, err
	}
	after, of := p.From, ""
	if requested {
		after, of = p.Begins, step
	}
	type span struct{ Items, Last int64 }
	whole, err := db.One[span](ctx, in, `
		SELECT COUNT(*) AS items, COALESCE(MAX(position), 0) AS last FROM reward_items
		WHERE workspace_id = $1 AND session_id = $2 AND position > $3 AND ($4 = '' OR step = $4)`, r.ID, after, of)
	if err != nil {
		return nil, fmt.Errorf("count what can be checked: %w", err)
	}
	nth := whole.Items/s.anchors.candidates + 1
	all, err := db.Query[candidate](ctx, in, `
		SELECT i.position, i.prompt, i.completion, i.reward IS NOT NULL AS scored FROM reward_items i
		WHERE i.workspace_id = $1 AND i.session_id = $2 AND i.position > $3 AND i.position <= $4
			AND ($5 = '' OR i.step = $5) AND i.position % $6 = $7
			AND NOT EXISTS (SELECT 1 FROM reward_items d WHERE d.workspace_id = $1 AND d.session_id = $2
				AND d.prompt = i.prompt AND d.completion = i.completion AND d.checked > 0)
		ORDER BY i.position`, r.ID, after, whole.Last, of, nth, random.Int64N(nth))
	if err != nil {
		return nil, fmt.Errorf("read what can be checked: %w", err)
	}
	return &pool{all, max(whole.Last, after)}, nil
}

// begin draws the sample of a check. The loop judges it. A check by count takes what there is. It refuses with
// *fewPrompts where there is too little to draw from, and with errChecking while another check is pending.
func (s *Store) begin(ctx context.Context, ws tenant.ID, r *session, step string, requested bool) error {
	random := s.anchors.random()
	from, err := s.pool(ctx, s.DB.In(ws), r, step, requested, random)
	if err != nil {
		return err
	}
	drawn := draw(from.all, int(r.SampleSize), random)
	n := len(drawn.compared)
	few := n == 0 || requested && n < minSample
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		now, err := s.find(ctx, in, r.ID)
		switch {
		case err != nil:
			return err
		case now.refusal() != nil:
			return now.refusal()
		case now.Process != r.Process || now.CheckedAtItem != r.CheckedAtItem && !requested:
			return errChecking // another call was faster
		}
		if !requested {
			if err := now.counted(ctx, in, from.last, few); err != nil {
				return err
			}
		}
		if few {
			return nil
		}
		return insertCheck(ctx, in, now, s.now(), step, requested, drawn)
	})
	if err == nil && few {
		err = &fewPrompts{n}
	}
	if err == nil {
		s.anchors.notify()
	}
	return err
}

// counted notes that a check by count was made, or that there was nothing to draw: the next is due when as much again
// was scored.
func (r *session) counted(ctx context.Context, in db.Scoped, last int64, nothing bool) error {
	p, err := r.process()
	if err != nil {
		return err
	}
	p.From, p.Nothing = last, nothing
	text, err := encoded(p)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		UPDATE reward_sessions SET checked_at_item = scored, evidence = $3 WHERE workspace_id = $1 AND id = $2`,
		r.ID, text); err != nil {
		return fmt.Errorf("count a check of %s: %w", r.ID, err)
	}
	return nil
}

// insertCheck stores a pending check and marks what it has drawn.
func insertCheck(
	ctx context.Context, in db.Scoped, r *session, now clock.Time, step string, requested bool, drawn sample,
) error {
	type state struct{ Last, Pending int64 }
	was, err := db.One[state](ctx, in, `
		SELECT COALESCE(MAX(number), 0) AS last, CAST(COALESCE(SUM(CASE WHEN done_at = 0 THEN 1 ELSE 0 END), 0) AS BIGINT)
			AS pending FROM reward_checks WHERE workspace_id = $1 AND session_id = $2`, r.ID)
	switch {
	case err != nil:
		return fmt.Errorf("number a check: %w", err)
	case was.Pending > 0:
		return errChecking
	}
	number := was.Last + 1
	if _, err := db.Exec(ctx, in, `
		INSERT INTO reward_checks (workspace_id, session_id, number, process, step, requested, at, done_at, n, masked,
			reward_passes, anchor_passes, anchor_failed, only_reward, only_anchor, corrected, anchor_rate, lowest, highest,
			evidence, held)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, 0, 0, 0, 0, 0, FALSE, 0, 0, 0, 0, FALSE)`,
		r.ID, number, r.Process, step, requested, now, drawn.masked); err != nil {
		return fmt.Errorf("begin a check of %s: %w", r.ID, err)
	}
	for _, position := range drawn.compared {
		if _, err := db.Exec(ctx, in, `
			UPDATE reward_items SET checked = $4 WHERE workspace_id = $1 AND session_id = $2 AND position = $3`,
			r.ID, position, number); err != nil {
			return fmt.Errorf("draw an item: %w", err)
		}
	}
	return nil
}

// A pendingCheck names a check whose sample is not judged yet.
type pendingCheck struct {
	WorkspaceID tenant.ID
	SessionID   string
	Number      int64
	Process     int64
	Step        string
	Requested   bool
	Masked      int64
}

// pendingChecks reads the checks of all workspaces that are not judged yet, the oldest first.
func (s *Store) pendingChecks(ctx context.Context) ([]pendingCheck, error) {
	all, err := db.Query[pendingCheck](ctx, s.DB.Across("the anchors of all workspaces are asked"), `
		SELECT workspace_id, session_id, number, process, step, requested, masked FROM reward_checks WHERE done_at = 0
		ORDER BY at`)
	if err != nil {
		return nil, fmt.Errorf("find pending checks: %w", err)
	}
	return all, nil
}

// A drawnItem is an item of a check, with its texts.
type drawnItem struct {
	Position           int64
	Passed             bool // by the session's judges
	Prompt, Completion string
}

// drawnOf reads the positions of the items that a check compares.
func drawnOf(ctx context.Context, in db.Scoped, c *pendingCheck) ([]int64, error) {
	all, err := db.Query[int64](ctx, in, `
		SELECT position FROM reward_items WHERE workspace_id = $1 AND session_id = $2 AND checked = $3
			AND checked > 0 AND reward IS NOT NULL ORDER BY position`, c.SessionID, c.Number)
	if err != nil {
		return nil, fmt.Errorf("read what was drawn: %w", err)
	}
	return all, nil
}

func drawnAt(ctx context.Context, in db.Scoped, session string, position int64) (drawnItem, error) {
	i, err := db.One[drawnItem](ctx, in, `
		SELECT i.position, i.verdict = 'pass' AS passed, p.body AS prompt, c.body AS completion FROM reward_items i
		JOIN reward_texts p ON p.workspace_id = i.workspace_id AND p.session_id = i.session_id AND p.digest = i.prompt
		JOIN reward_texts c ON c.workspace_id = i.workspace_id AND c.session_id = i.session_id AND c.digest = i.completion
		WHERE i.workspace_id = $1 AND i.session_id = $2 AND i.position = $3`, session, position)
	if err != nil {
		return i, fmt.Errorf("read a drawn item: %w", err)
	}
	return i, nil
}

// dropCheck ends a check that will have no result: its session has ended, or is held, or has begun another process.
// What it drew stays drawn, and its number is not given again: the next check must not judge what this one drew.
func (s *Store) dropCheck(ctx context.Context, in db.Scoped, c *pendingCheck) error {
	if _, err := db.Exec(ctx, in, `
		UPDATE reward_checks SET done_at = $4 WHERE workspace_id = $1 AND session_id = $2 AND number = $3 AND done_at = 0`,
		c.SessionID, c.Number, s.now()); err != nil {
		return fmt.Errorf("drop a check of %s: %w", c.SessionID, err)
	}
	return nil
}

// conclude stores the result of a check, and holds the session if the evidence suffices. A check is concluded once.
func (s *Store) conclude(ctx context.Context, c *pendingCheck, certificate *calibration.Certificate, t *tally) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(c.WorkspaceID)
		r, err := s.find(ctx, in, c.SessionID)
		if err != nil {
			return err
		}
		if r.refusal() != nil || r.Process != c.Process {
			return s.dropCheck(ctx, in, c)
		}
		p, err := r.process()
		if err != nil {
			return err
		}
		var passes bool
		p.Watch, passes = p.Check(c.Requested, t.onlyReward, t.onlyAnchor, t.n-t.onlyReward-t.onlyAnchor)
		stored, err := storeCheck(ctx, in, c, certificate, t, s.now(), &p)
		if err != nil || !stored {
			return err
		}
		if err := s.storeEvidence(ctx, in, r, c, &p, passes); err != nil || !p.Holds() {
			return err
		}
		err = s.holdIn(ctx, tx, c.WorkspaceID, r.ID, t.reason(c.Step, r.Checks+1, &p.Watch))
		return err
	})
	return err
}

// storeCheck stores the result of a check. It reports false where the check has one.
func storeCheck(
	ctx context.Context, in db.Scoped, c *pendingCheck, certificate *calibration.Certificate, t *tally, now clock.Time,
	p *process,
) (bool, error) {
	rate, interval, corrected := t.anchorRate(certificate)
	n, err := db.Exec(ctx, in, `
		UPDATE reward_checks SET done_at = $4, n = $5, reward_passes = $6, anchor_passes = $7, anchor_failed = $8,
			only_reward = $9, only_anchor = $10, corrected = $11, anchor_rate = $12, lowest = $13, highest = $14,
			evidence = $15, held = $16
		WHERE workspace_id = $1 AND session_id = $2 AND number = $3 AND done_at = 0`,
		c.SessionID, c.Number, now, t.n, t.rewardPasses, t.anchorPasses, t.failed, t.onlyReward, t.onlyAnchor,
		corrected,
		rate, interval[0], interval[1], p.Evidence(), p.Holds())
	if err != nil {
		return false, fmt.Errorf("store a check of %s: %w", c.SessionID, err)
	}
	return n == 1, nil
}

// storeEvidence stores the evidence after a check. A step before the last that passed is not pinned again.
func (s *Store) storeEvidence(
	ctx context.Context, in db.Scoped, r *session, c *pendingCheck, p *process, passes bool,
) error {
	text, err := encoded(p)
	if err != nil {
		return err
	}
	pinned := r.PinnedStep
	if passes && !p.Holds() {
		later, err := isLater(ctx, in, r.ID, c.Step, pinned)
		if err != nil {
			return err
		}
		if later {
			pinned = c.Step
		}
	}
	if _, err := db.Exec(ctx, in, `
		UPDATE reward_sessions SET evidence = $3, checks = checks + 1, pinned_step = $4
		WHERE workspace_id = $1 AND id = $2`, r.ID, text, pinned); err != nil {
		return fmt.Errorf("store the evidence of %s: %w", r.ID, err)
	}
	return nil
}

// isLater reports whether items of a step were scored after all items of another.
func isLater(ctx context.Context, in db.Scoped, id, step, than string) (bool, error) {
	later, err := db.One[bool](ctx, in, `
		SELECT (SELECT COALESCE(MAX(position), 0) FROM reward_items WHERE workspace_id = $1 AND session_id = $2
				AND step = $3) >= (SELECT COALESCE(MAX(position), 0) FROM reward_items WHERE workspace_id = $1
				AND session_id = $2 AND step = $4)`, id, step, than)
	if err != nil {
		return false, fmt.Errorf("order the steps of %s: %w", id, err)
	}
	return later, nil
}

// lastStep returns the step of the item that was scored last.
func lastStep(ctx context.Context, in db.Scoped, id string) (string, error) {
	step, err := db.Maybe[string](ctx, in, `
		SELECT step FROM reward_items WHERE workspace_id = $1 AND session_id = $2 ORDER BY position DESC LIMIT 1`, id)
	if err != nil {
		return "", fmt.Errorf("find the last step of %s: %w", id, err)
	}
	if step == nil {
		return "", nil
	}
	return *step, nil
}

// maxHistory bounds the checks that are shown of a session: the last ones.
const maxHistory = 1000

// history reads the checks of a session that have a result, the first first.
func (s *Store) history(ctx context.Context, in db.Scoped, id string) ([]Check, error) {
	type row struct {
		Number, Process, N, Masked int64
		Step                       string
		DoneAt                     clock.Time
		RewardPasses, AnchorFailed int64
		Requested, Corrected, Held bool
		AnchorRate                 float64
		Lowest, Highest, Evidence  float64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT number, process, n, masked, step, done_at, reward_passes, anchor_failed, requested, corrected, held,
			anchor_rate, lowest, highest, evidence
		FROM reward_checks WHERE workspace_id = $1 AND session_id = $2 AND done_at > 0 AND n > 0 ORDER BY number DESC LIMIT $3`,
		id, maxHistory)
	if err != nil {
		return nil, fmt.Errorf("read the checks of %s: %w", id, err)
	}
	all := make([]Check, len(rows))
	for i, r := range rows {
		all[len(rows)-1-i] = Check{
			Step: r.Step, At: r.DoneAt, N: r.N, RewardRate: share(r.RewardPasses, r.N), AnchorRate: r.AnchorRate,
			AnchorCI: [2]float64{r.Lowest, r.Highest}, AnchorCorrected: r.Corrected, AnchorFailed: r.AnchorFailed,
			Masked: r.Masked, Evidence: r.Evidence, Process: r.Process, Requested: r.Requested, Held: r.Held,
		}
	}
	return all, nil
}
