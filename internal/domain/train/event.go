package train

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// An Event is something that happened in a run.
type Event struct {
	Seq     int64          `json:"seq" doc:"Counts up within the run"`
	At      clock.Time     `json:"at"`
	Attempt int64          `json:"attempt"`
	Level   string         `json:"level" enum:"info,warn,error"`
	Type    string         `json:"type" enum:"message,metrics"`
	Step    int64          `json:"step"`
	Message string         `json:"message"`
	Text    string         `json:"-" db:"data"`
	Data    jsontext.Value `json:"data" db:"-" doc:"Metrics by name; null for a message"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Event) SchemaName() string { return "TrainingEvent" }

// A Report is an event as a worker tells it. Number counts up within its attempt.
type Report struct {
	Number  int64              `json:"number" minimum:"1"`
	Level   string             `json:"level" enum:"info,warn,error"`
	Type    string             `json:"type" enum:"message,metrics"`
	Step    int64              `json:"step" minimum:"0"`
	Message string             `json:"message,omitempty" maxLength:"4000"`
	Data    map[string]float64 `json:"data,omitempty" maxProperties:"100" doc:"Metrics by name, such as loss"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Report) SchemaName() string { return "WorkerEvent" }

// Bounds of events.
const (
	maxReports = 500     // of one call
	maxEvents  = 200_000 // of a run; later ones are not kept
)

// Record keeps what a worker tells, each number of an attempt once. It returns how many were new.
func (s *Store) Record(ctx context.Context, w Worker, h LeaseRef, reports []Report) (kept int, err error) {
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		kept = 0
		r, a, err := s.running(ctx, tx, w, h)
		if err != nil {
			return err
		}
		for _, e := range reports {
			text, err := metrics(e.Data)
			if err != nil {
				return err
			}
			told, err := s.add(ctx, tx, r, Event{
				At: s.now(), Attempt: a.Attempt, Level: e.Level, Type: e.Type, Step: e.Step,
				Message: redact.String(e.Message), Text: text,
			}, e.Number)
			if err != nil {
				return err
			}
			if told {
				kept++
			}
		}
		return s.saveEvents(ctx, tx, r)
	})
	return kept, err
}

// metrics returns metrics as they are stored. JSON has no number for those that are not finite.
func metrics(of map[string]float64) (string, error) {
	if of == nil {
		return "", nil
	}
	text, err := jsonText(of)
	if err != nil {
		return "", fault.Invalid("data", "must be finite numbers by name")
	}
	return text, nil
}

// add keeps an event, unless the attempt has told it before.
func (s *Store) add(ctx context.Context, tx *db.Tx, r *Run, e Event, number int64) (bool, error) {
	if r.Events >= maxEvents {
		return false, nil
	}
	n, err := db.Exec(ctx, tx.In(r.Workspace), `
		INSERT INTO training_events (workspace_id, run_id, seq, attempt, number, at, level, type, step, message, data)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (workspace_id, run_id, attempt, number) DO NOTHING`,
		r.ID, r.Events+1, e.Attempt, number, e.At, e.Level, e.Type, e.Step, e.Message, e.Text)
	if err != nil {
		return false, fmt.Errorf("insert an event: %w", err)
	}
	r.Events += n
	return n > 0, nil
}

func (s *Store) saveEvents(ctx context.Context, tx *db.Tx, r *Run) error {
	if _, err := db.Exec(ctx, tx.In(r.Workspace),
		`UPDATE training_runs SET events = $3 WHERE workspace_id = $1 AND id = $2`, r.ID, r.Events); err != nil {
		return fmt.Errorf("count events: %w", err)
	}
	return nil
}

// tell keeps a message of the server's own. Its number is below zero: workers count from 1.
func (s *Store) tell(ctx context.Context, tx *db.Tx, r *Run, level, message string) error {
	if _, err := s.add(ctx, tx, r, Event{
		At: s.now(), Attempt: r.Attempt, Level: level, Type: "message", Step: r.Step, Message: message,
	}, -r.Events-1); err != nil {
		return err
	}
	return s.saveEvents(ctx, tx, r)
}

// EventsAfter lists the events of a run after one, in their order.
func (s *Store) EventsAfter(ctx context.Context, ws tenant.ID, runID string, after int64, limit int) ([]Event, error) {
	all, err := db.Query[Event](ctx, s.DB.In(ws), `
		SELECT seq, at, attempt, level, type, step, message, data FROM training_events
		WHERE workspace_id = $1 AND run_id = $2 AND seq > $3 ORDER BY seq LIMIT $4`, runID, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	for i := range all {
		if all[i].Data = jsontext.Value(all[i].Text); all[i].Text == "" {
			all[i].Data = jsontext.Value("null")
		}
	}
	return all, nil
}
