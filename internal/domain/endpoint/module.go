package endpoint

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/module"
)

// Deps is what the module of a store needs.
type Deps struct {
	Serving   func() error  // refuses while another server may own the data
	ColdStart time.Duration // how long a request waits for an engine
}

// Module serves dedicated endpoints, publishes them to the data plane, and looks after their engines.
func Module(s *Store, d Deps) module.Module {
	p := &publisher{Store: s, wait: d.ColdStart, known: map[string]published{}}
	m := module.Module{
		Name: "dedicated endpoints", Routes: append((&handler{s}).routes(), (&operator{s}).routes()...),
		Publishers: map[string]feed.Source{changed: p}, Alarms: s.Alarms,
	}
	if s.Backend != nil {
		s.DB.Listen(topic, s.wake)
		s.Groups.OnWaiting(s.wake)
		m.Background = []module.Loop{{Name: "dedicated endpoints", Run: func(ctx context.Context) {
			s.loop(ctx, d.Serving)
		}}}
	}
	return m
}

const mostAlarms = 10

// Alarms returns the endpoints that have failed, or that the wallet cannot pay for.
func (s *Store) Alarms(ctx context.Context, ws tenant.ID) ([]module.Notice, error) {
	type failed struct {
		ID, Name, ErrorMessage string
		StartedAt              clock.Time
	}
	rows, err := db.Query[failed](ctx, s.DB.In(ws), `
		SELECT id, name, error_message, started_at FROM dedicated_endpoints WHERE workspace_id = $1 AND deleted_at = 0
			AND (status = 'FAILED' OR error_code = $2) ORDER BY started_at DESC, id LIMIT $3`, codeBalance, mostAlarms)
	if err != nil {
		return nil, fmt.Errorf("read failed endpoints: %w", err)
	}
	all := make([]module.Notice, len(rows))
	for i, r := range rows {
		all[i] = module.Notice{
			Kind: "endpoint.failed", Subject: r.ID, Title: fmt.Sprintf("The dedicated endpoint %s has stopped", r.Name),
			Detail: r.ErrorMessage, At: r.StartedAt, Link: module.Link{Page: "training/endpoints/" + r.ID},
		}
	}
	return all, nil
}
