// Package notice is the outbox of what people are told of. A notice is written in the transaction of its cause, so that
// neither exists without the other; notify delivers it afterwards.
package notice

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// A Kind is a kind of notices. A channel chooses its kinds.
type Kind string

// The kinds that a channel can choose.
const (
	WalletLow      Kind = "wallet.low"
	BudgetReached  Kind = "budget.reached"
	GateVerdict    Kind = "gate.verdict"
	AnchorHeld     Kind = "anchor.held"
	JudgeDrift     Kind = "judge.drift"
	JudgeFailing   Kind = "judge.failing"
	JobEnded       Kind = "job.ended"
	EndpointFailed Kind = "endpoint.failed"
)

// The kinds that no channel chooses: a test goes to the channel that is tested, and every other channel hears of one
// that was disabled.
const (
	Test            Kind = "channel.test"
	ChannelDisabled Kind = "channel.disabled"
)

// Kinds lists the kinds that a channel can choose, with when they are sent.
var Kinds = []struct {
	Kind Kind
	When string
}{
	{WalletLow, "the balance falls below the workspace's mark; again after it was above it"},
	{BudgetReached, "a budget of a key or of the workspace cannot cover a request; once in its day or month"},
	{GateVerdict, "the gate of an alias has promoted its canary, or rolled it back"},
	{AnchorHeld, "a reward session is held, because its rewards diverge from its anchor"},
	{JudgeDrift, "a judge that monitors traffic raises its alert"},
	{JudgeFailing, "a judge that monitors traffic cannot judge"},
	{JobEnded, "a job has failed, or a job of more than a minute is done"},
	{EndpointFailed, "a dedicated endpoint has failed"},
}

// Chosen reports whether a channel can choose k.
func (k Kind) Chosen() bool {
	for _, row := range Kinds {
		if row.Kind == k {
			return true
		}
	}
	return false
}

// A Notice is what people are told. Its texts may hold what customers wrote: they are plain text.
type Notice struct {
	Kind    Kind
	Subject string // the id or name of what it is about
	Title   string // one line
	Text    string
	Link    string // a path of the dashboard below the workspace, such as wallet; empty for none
}

// Topic is signalled when a transaction that adds a notice has committed.
const Topic = "notices"

// Bounds of a notice's texts, in characters.
const (
	maxTitle = 200
	maxText  = 4000
)

// Add adds a notice in the transaction of its cause.
func Add(ctx context.Context, tx *db.Tx, ws tenant.ID, n Notice) error {
	_, err := Write(ctx, tx, ws, n)
	return err
}

// Write is Add, and returns the notice's id.
func Write(ctx context.Context, tx *db.Tx, ws tenant.ID, n Notice) (string, error) {
	noticeID := id.New("ntc")
	_, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO notices (workspace_id, id, kind, subject, title, body, link, at, queued_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`,
		noticeID, n.Kind, plain(n.Subject, maxTitle), oneLine(n.Title), plain(n.Text, maxText), n.Link, clock.Now())
	if err != nil {
		return "", fmt.Errorf("add a notice of %s: %w", n.Kind, err)
	}
	tx.Signal(Topic)
	return noticeID, nil
}

// Once adds a notice unless one was added with the same mark, which Clear removes.
func Once(ctx context.Context, tx *db.Tx, ws tenant.ID, mark string, n Notice) error {
	added, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO notice_marks (workspace_id, mark, at) VALUES ($1, $2, $3)
		ON CONFLICT (workspace_id, mark) DO NOTHING`, mark, clock.Now())
	if err != nil {
		return fmt.Errorf("mark a notice of %s: %w", n.Kind, err)
	}
	if added == 0 {
		return nil
	}
	return Add(ctx, tx, ws, n)
}

// Clear removes a mark: the state that it stands for is over.
func Clear(ctx context.Context, tx *db.Tx, ws tenant.ID, mark string) error {
	if _, err := db.Exec(ctx, tx.In(ws),
		`DELETE FROM notice_marks WHERE workspace_id = $1 AND mark = $2`, mark); err != nil {
		return fmt.Errorf("clear a mark: %w", err)
	}
	return nil
}

// oneLine makes a title of a text: no line breaks or control characters, and not long.
func oneLine(text string) string {
	return plain(strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, text), maxTitle)
}

// plain replaces what one of the engines cannot store, removes credentials, and cuts a text.
func plain(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	text = redact.String(text)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
