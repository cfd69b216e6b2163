package notify

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/notice"
)

// A Sent is a notice as people read it.
type Sent struct {
	ID      string      `json:"id"`
	Object  string      `json:"object" enum:"notice"`
	Kind    notice.Kind `json:"kind"`
	Subject string      `json:"subject" doc:"The id or name of what it is about"`
	Title   string      `json:"title"`
	Text    string      `json:"text" db:"body"`
	Link    string      `json:"link" doc:"A page of the dashboard, below the workspace"`
	At      clock.Time  `json:"at"`
}

// SchemaName is the name of the type in the API's description.
func (Sent) SchemaName() string { return "Notice" }

const noticeColumns = `id, 'notice' AS object, kind, subject, title, body, link, at`

// Notices lists what the workspace was told of, the newest first.
func (s *Store) Notices(ctx context.Context, ws tenant.ID, limit, offset int) ([]Sent, error) {
	all, err := db.Query[Sent](ctx, s.db.In(ws), `SELECT `+noticeColumns+` FROM notices
		WHERE workspace_id = $1 AND kind <> $4 ORDER BY at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset, notice.Test)
	if err != nil {
		return nil, fmt.Errorf("list notices: %w", err)
	}
	return all, nil
}

// A waiting is a notice that has no deliveries yet.
type waiting struct {
	WorkspaceID tenant.ID
	ID          string
	Kind        notice.Kind
	Subject     string
}

// queueBatch bounds the notices that are read at a time.
const queueBatch = 100

// queue makes the deliveries of the notices that have none yet. It reports whether there may be more.
func (s *Store) queue(ctx context.Context) (more bool, err error) {
	all, err := db.Query[waiting](ctx, s.db.Across("notices of all workspaces are delivered"), `
		SELECT workspace_id, id, kind, subject FROM notices WHERE queued_at = 0 ORDER BY at LIMIT $1`, queueBatch)
	if err != nil {
		return false, fmt.Errorf("read the outbox: %w", err)
	}
	for _, n := range all {
		if err := s.queueOne(ctx, n); err != nil {
			return false, err
		}
	}
	return len(all) == queueBatch, nil
}

func (s *Store) queueOne(ctx context.Context, n waiting) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in, now := tx.In(n.WorkspaceID), s.now()
		taken, err := db.Exec(ctx, in,
			`UPDATE notices SET queued_at = $3 WHERE workspace_id = $1 AND id = $2 AND queued_at = 0`, n.ID, now)
		if err != nil || taken == 0 {
			return err
		}
		all, err := channels(ctx, in, ``)
		if err != nil {
			return err
		}
		for i := range all {
			if !all[i].wants(n.Kind, n.Subject) {
				continue
			}
			if _, err := db.Exec(ctx, in, `
				INSERT INTO notice_deliveries (workspace_id, id, channel_id, notice_id, kind, state, attempts, first_at,
					next_at, failure, created_at)
				VALUES ($1, $2, $3, $4, $5, 'pending', 0, 0, $6, '', $6)
				ON CONFLICT (workspace_id, channel_id, notice_id) DO NOTHING`,
				id.New("dlv"), all[i].ID, n.ID, n.Kind, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("queue the deliveries of %s: %w", n.ID, err)
	}
	return nil
}

// A due is a delivery whose turn it is.
type due struct {
	WorkspaceID tenant.ID
	ID          string
	ChannelID   string
	NoticeID    string
	State       DeliveryState
	Attempts    int64
	FirstAt     clock.Time
	NextAt      clock.Time
}

const dueColumns = `workspace_id, id, channel_id, notice_id, state, attempts, first_at, next_at`

// due returns the deliveries whose turn it is, the most overdue first. Of a workspace it returns as many as may be
// tried at once, so that one with many delays no other.
func (s *Store) due(ctx context.Context, most int) ([]due, error) {
	all, err := db.Query[due](ctx, s.db.Across("notices of all workspaces are delivered"), `
		SELECT `+dueColumns+` FROM (
			SELECT `+dueColumns+`, ROW_NUMBER() OVER (PARTITION BY workspace_id ORDER BY next_at, id) AS turn
			FROM notice_deliveries WHERE state = 'pending' AND next_at <= $1
		) AS waiting WHERE turn <= $3 ORDER BY next_at, id LIMIT $2`, s.now(), most, maxOfWorkspace)
	if err != nil {
		return nil, fmt.Errorf("read what is to be delivered: %w", err)
	}
	return all, nil
}

// claim takes a delivery for an attempt, and counts the attempt. It reports false when another has it.
func (s *Store) claim(ctx context.Context, d *due) (bool, error) {
	now := s.now()
	first := d.FirstAt
	if first == 0 {
		first = now
	}
	n, err := db.Exec(ctx, s.db.In(d.WorkspaceID), `
		UPDATE notice_deliveries SET next_at = $5, attempts = attempts + 1, first_at = $6
		WHERE workspace_id = $1 AND id = $2 AND state = 'pending' AND next_at = $3 AND attempts = $4`,
		d.ID, d.NextAt, d.Attempts, now.Add(claimTime), first)
	if err != nil {
		return false, fmt.Errorf("claim the delivery %s: %w", d.ID, err)
	}
	d.Attempts, d.FirstAt, d.NextAt = d.Attempts+1, first, now.Add(claimTime)
	return n == 1, nil
}

// read returns the notice of a delivery, or nil when it is gone.
func (s *Store) read(ctx context.Context, ws tenant.ID, noticeID string) (*Sent, error) {
	n, err := db.Maybe[Sent](ctx, s.db.In(ws), `SELECT `+noticeColumns+` FROM notices
		WHERE workspace_id = $1 AND id = $2`, noticeID)
	if err != nil {
		return nil, fmt.Errorf("read a notice: %w", err)
	}
	return n, nil
}

// A result is how an attempt ended: delivered when failure is empty.
type result struct {
	failure string
	gone    bool // the receiver says that it wants no more
}

// finish stores how an attempt ended. A channel whose attempts have failed for three days, or that is gone, is
// disabled, and the other channels hear of it.
func (s *Store) finish(ctx context.Context, d *due, r result) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in, now := tx.In(d.WorkspaceID), s.now()
		to, next := Delivered, now
		switch {
		case r.failure != "" && (now.Sub(d.FirstAt) >= giveUpAfter || r.gone):
			to = Failed
		case r.failure != "":
			to, next = Pending, now.Add(delay(d.Attempts))
		}
		if !d.State.may(to) {
			return fmt.Errorf("a delivery that is %s cannot become %s", d.State, to)
		}
		var ended *clock.Time
		if to != Pending {
			ended = &now
		}
		held, err := db.Exec(ctx, in, `
			UPDATE notice_deliveries SET state = $4, next_at = $5, failure = $6, ended_at = $7
			WHERE workspace_id = $1 AND id = $2 AND state = 'pending' AND attempts = $3`,
			d.ID, d.Attempts, to, next, r.failure, ended)
		if err != nil || held == 0 {
			return err
		}
		return s.judge(ctx, tx, d, r, now)
	})
	if err != nil {
		return fmt.Errorf("store an attempt of %s: %w", d.ID, err)
	}
	return nil
}

// judge keeps account of a channel's failures.
func (s *Store) judge(ctx context.Context, tx *db.Tx, d *due, r result, now clock.Time) error {
	in := tx.In(d.WorkspaceID)
	stored, err := db.Maybe[row](ctx, in, `SELECT `+channelColumns+` FROM notice_channels
		WHERE workspace_id = $1 AND id = $2`, d.ChannelID)
	if err != nil || stored == nil {
		return err
	}
	before, err := stored.channel()
	if err != nil {
		return err
	}
	c := before
	switch {
	case r.failure == "" && c.FailingSince == nil:
		return nil
	case r.failure == "":
		c.FailingSince = nil
	case c.FailingSince == nil:
		c.FailingSince = &now
	}
	if !c.Enabled || r.failure == "" || !r.gone && now.Sub(*c.FailingSince) < disableAfter {
		return saveChannel(ctx, in, &c)
	}
	c.Enabled, c.UpdatedAt, c.DisabledReason = false, now, "every attempt has failed for three days: "+r.failure
	if r.gone {
		c.DisabledReason = "the receiver " + r.failure
	}
	if err := saveChannel(ctx, in, &c); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		UPDATE notice_deliveries SET state = 'failed', failure = 'the channel is disabled', ended_at = $3
		WHERE workspace_id = $1 AND channel_id = $2 AND state = 'pending'`, c.ID, now); err != nil {
		return err
	}
	if err := audit.Record(ctx, tx, d.WorkspaceID, tenant.Operator, "channel.disable", c.ID, before, c); err != nil {
		return err
	}
	return notice.Add(ctx, tx, d.WorkspaceID, notice.Notice{
		Kind: notice.ChannelDisabled, Subject: c.ID, Title: "A notification channel was disabled",
		Text: "The channel to " + c.Address + " was disabled: " + c.DisabledReason + ".",
		Link: "settings?tab=notifications",
	})
}

// deliveryRow is a delivery as it is stored.
type deliveryRow struct {
	Delivery
	Next clock.Time `db:"next_at"`
}

func (r *deliveryRow) delivery() Delivery {
	d := r.Delivery
	if d.State == Pending {
		d.NextAt = &r.Next
	}
	return d
}

const deliveryColumns = `id, 'delivery' AS object, channel_id, notice_id, kind, state, attempts, next_at, failure,
	created_at, ended_at`

// Deliveries lists what went to a channel, the newest first.
func (s *Store) Deliveries(ctx context.Context, ws tenant.ID, channelID string, limit, offset int) ([]Delivery, error) {
	if _, err := findChannel(ctx, s.db.In(ws), channelID); err != nil {
		return nil, err
	}
	rows, err := db.Query[deliveryRow](ctx, s.db.In(ws), `SELECT `+deliveryColumns+` FROM notice_deliveries
		WHERE workspace_id = $1 AND channel_id = $2 ORDER BY created_at DESC, id DESC LIMIT $3 OFFSET $4`,
		channelID, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	all := make([]Delivery, len(rows))
	for i := range rows {
		all[i] = rows[i].delivery()
	}
	return all, nil
}

func findDelivery(ctx context.Context, in db.Scoped, channelID, deliveryID string) (Delivery, error) {
	r, err := db.Maybe[deliveryRow](ctx, in, `SELECT `+deliveryColumns+` FROM notice_deliveries
		WHERE workspace_id = $1 AND channel_id = $2 AND id = $3`, channelID, deliveryID)
	switch {
	case err != nil:
		return Delivery{}, fmt.Errorf("find a delivery: %w", err)
	case r == nil:
		return Delivery{}, fault.NotFound("delivery", deliveryID)
	}
	return r.delivery(), nil
}

// Redeliver has a delivery that has ended sent again, with the same id.
func (s *Store) Redeliver(
	ctx context.Context, ws tenant.ID, by tenant.Actor, channelID, deliveryID string,
) (after Delivery, err error) {
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := findDelivery(ctx, tx.In(ws), channelID, deliveryID)
		if err != nil {
			return err
		}
		if before.State == Pending {
			after = before
			return nil
		}
		if before.Attempts >= mostAttempts {
			return fault.Conflict("the delivery was attempted %d times: it is not made again", before.Attempts)
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			UPDATE notice_deliveries SET state = $3, next_at = $4, first_at = 0, ended_at = NULL
			WHERE workspace_id = $1 AND id = $2`, deliveryID, Pending, s.now()); err != nil {
			return fmt.Errorf("deliver %s again: %w", deliveryID, err)
		}
		if after, err = findDelivery(ctx, tx.In(ws), channelID, deliveryID); err != nil {
			return err
		}
		tx.Signal(notice.Topic)
		return audit.Record(ctx, tx, ws, by, "channel.redeliver", channelID, before, after)
	})
	return after, err
}

// Test sends a notice to a channel, enabled or not, and returns its delivery.
func (s *Store) Test(ctx context.Context, ws tenant.ID, by tenant.Actor, channelID string) (made Delivery, err error) {
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		c, err := findChannel(ctx, tx.In(ws), channelID)
		if err != nil {
			return err
		}
		if err := s.checkTests(ctx, tx.In(ws)); err != nil {
			return err
		}
		noticeID, err := notice.Write(ctx, tx, ws, notice.Notice{
			Kind: notice.Test, Subject: c.ID, Title: "A test of this notification channel",
			Text: "Notices of this workspace arrive here.", Link: "settings?tab=notifications",
		})
		if err != nil {
			return err
		}
		now := s.now()
		made = Delivery{
			ID: id.New("dlv"), Object: "delivery", ChannelID: c.ID, NoticeID: noticeID, Kind: notice.Test,
			State: Pending, NextAt: &now, CreatedAt: now,
		}
		if _, err := db.Exec(ctx, tx.In(ws), `
			INSERT INTO notice_deliveries (workspace_id, id, channel_id, notice_id, kind, state, attempts, first_at, next_at,
				failure, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, 0, 0, $7, '', $7)`,
			made.ID, c.ID, noticeID, made.Kind, Pending, now); err != nil {
			return fmt.Errorf("test a channel: %w", err)
		}
		return audit.Record(ctx, tx, ws, by, "channel.test", c.ID, nil, nil)
	})
	return made, err
}

// Bounds of what is sent on demand. An address is anyone's, so that a workspace must not flood it from this server.
const (
	mostTests    = 20 // of a workspace in an hour
	mostAttempts = 100
)

// checkTests refuses a test that is one too many, whichever channels there were.
func (s *Store) checkTests(ctx context.Context, in db.Scoped) error {
	n, err := db.One[int](ctx, in, `SELECT COUNT(*) FROM notices WHERE workspace_id = $1 AND kind = $2 AND at > $3`,
		notice.Test, s.now().Add(-time.Hour))
	if err != nil {
		return fmt.Errorf("count tests: %w", err)
	}
	if n >= mostTests {
		return fault.RateLimited.New("channels are tested at most %d times in an hour", mostTests).In(time.Minute)
	}
	return nil
}

// Sweep deletes deliveries, notices and marks whose time has passed.
func (s *Store) Sweep(ctx context.Context) error {
	across, now := s.db.Across("what is left over of all workspaces"), s.now()
	if _, err := db.Exec(ctx, across,
		`DELETE FROM notice_deliveries WHERE created_at < $1`, now.Add(-keepFor)); err != nil {
		return fmt.Errorf("delete old deliveries: %w", err)
	}
	if _, err := db.Exec(ctx, across,
		`DELETE FROM notices WHERE at < $1 AND queued_at > 0`, now.Add(-keepFor)); err != nil {
		return fmt.Errorf("delete old notices: %w", err)
	}
	if _, err := db.Exec(ctx, across, `DELETE FROM notice_marks WHERE at < $1 AND mark <> $2`,
		now.Add(-keepMarks), lowMark); err != nil {
		return fmt.Errorf("delete old marks: %w", err)
	}
	return nil
}
