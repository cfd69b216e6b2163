package wallet

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A MonthTotal is a UTC month of a wallet, by the ledger: opening + top-ups − usage − refunds = closing, to the nano.
// A charge belongs to the month in which the ledger took it, so that a month that is over never changes.
type MonthTotal struct {
	Month   string     `json:"month" example:"2026-11"`
	From    clock.Time `json:"from"`
	To      clock.Time `json:"to" doc:"The first moment after the month"`
	Final   bool       `json:"final" doc:"The month is over: nothing of it changes any more"`
	Opening money.Nano `json:"opening_balance_usd"`
	TopUps  money.Nano `json:"topups_usd"`
	Usage   money.Nano `json:"usage_usd" doc:"Charged to the wallet"`
	Refunds money.Nano `json:"refunds_usd" doc:"Of payments: refunded, disputed, or paid of what was owed"`
	Closing money.Nano `json:"closing_balance_usd"`
}

// A Statement is a month with what it is made of.
type Statement struct {
	Object string `json:"object" enum:"statement"`
	MonthTotal
	Transfers []Movement  `json:"transfers" nullable:"false" doc:"Every top-up and refund, the oldest first"`
	Lines     []UsageLine `json:"usage" nullable:"false" doc:"By model and key, the dearest first; they sum to usage_usd"`
}

// A Movement is a transfer of a statement that is not usage.
type Movement struct {
	ID     string     `json:"id" db:"transfer_id"`
	At     clock.Time `json:"at"`
	Kind   string     `json:"kind" enum:"topup,refund"`
	Amount money.Nano `json:"amount_usd" doc:"Into the wallet, or out of it when negative"`
	Memo   string     `json:"memo"`
}

// A UsageLine is what a model used for a key in a month.
type UsageLine struct {
	Model    string     `json:"model"`
	KeyID    string     `json:"key_id" doc:"The key that asked, or what of the product's own did, such as cal_…; empty with others"`
	Others   int64      `json:"others,omitempty" doc:"How many lines this one stands for, if it sums up the cheapest"`
	Requests int64      `json:"requests"`
	Input    int64      `json:"input_tokens"`
	Output   int64      `json:"output_tokens"`
	Cost     money.Nano `json:"cost_usd"`
	Charged  money.Nano `json:"charged_usd"`
}

// microsPerDay is a UTC day.
const microsPerDay = 24 * 60 * 60 * 1_000_000

func dayOf(t clock.Time) int64 { return int64(t) / microsPerDay }

// dayColumns are the columns of the ledger's days; the first four are their key.
var dayColumns = []string{"workspace_id", "day", "kind", "account", "amount"}

// monthLayout is how a month is written.
const monthLayout = "2006-01"

// newMonth is the month that begins at a time, without its amounts.
func newMonth(start time.Time, now clock.Time) MonthTotal {
	end := clock.Of(start.AddDate(0, 1, 0))
	return MonthTotal{Month: start.Format(monthLayout), From: clock.Of(start), To: end, Final: end <= now}
}

// add adds what a kind of transfers moved into the wallet.
func (m *MonthTotal) add(kind string, amount money.Nano) {
	switch kind {
	case kindTopUp:
		m.TopUps += amount
	case kindUsage:
		m.Usage -= amount
	default:
		m.Refunds -= amount
	}
	m.Closing += amount
}

// A dayRow is what a kind of transfers moved into a wallet in a day.
type dayRow struct {
	Day    int64
	Kind   string
	Amount money.Nano
}

func readDays(ctx context.Context, in db.Scoped, before clock.Time) ([]dayRow, error) {
	rows, err := db.Query[dayRow](ctx, in, `
		SELECT day, kind, amount FROM ledger_days WHERE workspace_id = $1 AND account = 'wallet' AND day < $2
		ORDER BY day`, dayOf(before))
	if err != nil {
		return nil, fmt.Errorf("read the days of the ledger: %w", err)
	}
	return rows, nil
}

// months sums days up to months, the oldest first, from the first with an entry to that of now.
func months(days []dayRow, now clock.Time) (all []MonthTotal) {
	if len(days) == 0 {
		return nil
	}
	first := clock.Time(days[0].Day * microsPerDay).Std()
	balance := money.Nano(0)
	begin := time.Date(first.Year(), first.Month(), 1, 0, 0, 0, 0, time.UTC)
	for start := begin; clock.Of(start) <= now; start = start.AddDate(0, 1, 0) {
		m := newMonth(start, now)
		m.Opening, m.Closing = balance, balance
		for len(days) > 0 && days[0].Day < dayOf(m.To) {
			m.add(days[0].Kind, days[0].Amount)
			days = days[1:]
		}
		balance = m.Closing
		all = append(all, m)
	}
	return all
}

// Statements lists the months of a wallet, the newest first.
func (s *Store) Statements(ctx context.Context, ws tenant.ID, now clock.Time) ([]MonthTotal, error) {
	days, err := readDays(ctx, s.db.In(ws), now.Add(24*time.Hour))
	all := months(days, now)
	slices.Reverse(all)
	return all, err
}

// Statement returns a month of a wallet, such as 2026-11.
func (s *Store) Statement(ctx context.Context, ws tenant.ID, month string, now clock.Time) (made Statement, err error) {
	start, err := time.Parse(monthLayout, month)
	if err != nil || start.Format(monthLayout) != month {
		return made, fault.Invalid("month", "must be a month such as 2026-11")
	}
	made = Statement{
		Object: "statement", MonthTotal: newMonth(start, now), Transfers: []Movement{}, Lines: []UsageLine{},
	}
	err = s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		days, err := readDays(ctx, in, made.To)
		if err != nil {
			return err
		}
		if len(days) == 0 || made.From > now {
			return fault.NotFound("statement", month)
		}
		for _, d := range days {
			if d.Day < dayOf(made.From) {
				made.Opening += d.Amount
				made.Closing += d.Amount
			} else {
				made.add(d.Kind, d.Amount)
			}
		}
		moved, err := movements(ctx, in, made.From, made.To)
		if err != nil {
			return err
		}
		made.Transfers = append(made.Transfers, moved...)
		lines, err := usageLines(ctx, in, &made.MonthTotal)
		made.Lines = append(made.Lines, lines...)
		return err
	})
	return made, err
}

func movements(ctx context.Context, in db.Scoped, from, to clock.Time) ([]Movement, error) {
	all, err := db.Query[Movement](ctx, in, `
		SELECT transfer_id, at, kind, -amount AS amount, memo FROM ledger_entries
		WHERE workspace_id = $1 AND account = 'funding' AND at >= $2 AND at < $3 ORDER BY at, transfer_id`, from, to)
	if err != nil {
		return nil, fmt.Errorf("read the transfers of a month: %w", err)
	}
	return all, nil
}

// lateCharges is how long before a month the requests began whose charges are looked for first. The ledger takes a
// charge seconds after its request; after an outage it may be longer.
const lateCharges = 7 * 24 * time.Hour

// usageLines sums up the usage rows that the ledger took in a month. They sum to the ledger's own figure: rows of
// requests that are much older than their charge are looked for when they are missing.
func usageLines(ctx context.Context, in db.Scoped, m *MonthTotal) ([]UsageLine, error) {
	for _, begun := range [][2]clock.Time{{m.From.Add(-lateCharges), m.To}, {0, math.MaxInt64}} {
		lines, err := db.Query[UsageLine](ctx, in, `
			SELECT u.model, u.key_id, 0 AS others, COUNT(*) AS requests, CAST(SUM(u.input) AS BIGINT) AS input,
				CAST(SUM(u.output) AS BIGINT) AS output, CAST(SUM(u.cost) AS BIGINT) AS cost,
				CAST(SUM(u.charged) AS BIGINT) AS charged
			FROM usage_rows u JOIN ledger_entries e ON e.transfer_id = u.transfer_id AND e.line = 0
			WHERE u.workspace_id = $1 AND e.workspace_id = $1 AND u.at >= $2 AND u.at < $3 AND e.at >= $4 AND e.at < $5
			GROUP BY u.model, u.key_id ORDER BY charged DESC, cost DESC, u.model, u.key_id`,
			begun[0], begun[1], m.From, m.To)
		if err != nil {
			return nil, fmt.Errorf("read the usage of a month: %w", err)
		}
		sum := money.Nano(0)
		for _, l := range lines {
			sum += l.Charged
		}
		if sum == m.Usage || begun[0] == 0 {
			return lines, nil
		}
	}
	return nil, nil
}

// Brief returns the statement with at most that many lines of usage: the cheapest are summed up in the last.
func (s Statement) Brief(most int) Statement {
	if len(s.Lines) <= most {
		return s
	}
	rest := UsageLine{}
	for _, l := range s.Lines[most-1:] {
		rest.Others++
		rest.Requests += l.Requests
		rest.Input += l.Input
		rest.Output += l.Output
		rest.Cost += l.Cost
		rest.Charged += l.Charged
	}
	s.Lines = append(slices.Clip(s.Lines[:most-1]), rest)
	return s
}
