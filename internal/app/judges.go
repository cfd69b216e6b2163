package app

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/canary"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/draft"
	"sovereign/internal/domain/eval"
	"sovereign/internal/domain/evalendpoint"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/monitor"
	"sovereign/internal/domain/review"
	"sovereign/internal/domain/reward"
	"sovereign/internal/live"
	"sovereign/internal/store/module"
)

// monitorLag is more than the time from a request to its row in the log database, and the differences of servers'
// clocks.
const monitorLag = 5 * time.Second

// grading is the modules that grade: people's labels, judges, their background work, evals, and the gates of aliases.
func (d *domains) grading(
	i *instance, logged *logbook.Store, logs *logbook.Handler, sets *dataset.Store, aliases *alias.Store,
) []module.Module {
	d.judges = judging.NewClient(i.storage.db, i.plane.gateway)
	criteria := criterion.NewStore(i.storage.db)
	calibrations := calibration.NewStore(i.storage.db, i.storage.vault, criteria, d.judges)
	monitors := monitor.NewStore(i.storage.db, logged, logs.Open, d.judges)
	if !i.member.Single() {
		monitors.Lag = monitorLag
	}
	drafts := draft.NewStore(draft.Config{
		DB: i.storage.db, Criteria: criteria, Judges: d.judges, Logs: logged, Open: logs.Open, Models: chatModels{i},
	})
	criteria.Attach(calibrations.Dependent(), monitors.Dependent())
	gates := canary.NewStore(canary.Config{
		DB: i.storage.db, Feed: i.state.feed, Logs: logged, Open: logs.Open, Judges: d.judges, Aliases: aliases,
		Logging: func(ws tenant.ID) bool { return i.state.settings.Of(ws).LogDays > 0 },
	})
	aliases.Attach(gates)
	d.policies.AttachCanaries(gates)
	improvement, suggestion := drafts.Estimators()
	labels := label.NewStore(i.storage.db, logs, calibrations)
	endpoints := evalendpoint.NewStore(i.storage.db, i.storage.vault, i.models.guard)
	evals := eval.NewStore(eval.Config{
		DB: i.storage.db, Judges: d.judges, Models: chatModels{i}, Logs: logged, Open: logs.Open, Datasets: sets,
		Labels: labels, Endpoints: callable(endpoints, evalendpoint.NewClient(endpoints, i.models.guard)),
	})
	d.policies.AttachEvals(evals)
	d.evals = evals
	d.rewards = reward.NewStore(reward.Config{
		DB: i.storage.db, Feed: i.state.feed, Holds: i.state.poster.Holds, Judges: d.judges, Models: chatModels{i},
		Limits: i.state.limits, Bounds: i.plane.bounds, Log: i.log,
	})
	d.reviews = review.NewStore(review.Config{
		DB: i.storage.db, Labels: labels, Contents: logs, Logs: logged, Scans: monitors, Reports: calibrations,
		People: d.workspaces,
	})
	criteria.Attach(d.reviews.Dependent())
	return []module.Module{
		label.Module(labels),
		review.Module(d.reviews),
		judging.Module(d.judges),
		criterion.Module(criteria, chatModels{i}, map[string]judging.Estimator{
			"calibration": calibrations.Estimator(), "scan": monitors.Estimator(), "improvement": improvement,
			"suggestion": suggestion,
		}),
		calibration.Module(calibrations),
		monitor.Module(monitors, i.gate, i.log),
		draft.Module(drafts),
		eval.Module(evals),
		canary.Module(gates, i.gate, i.log),
		evalendpoint.Module(endpoints),
		reward.Module(d.rewards, reward.Deps{Find: d.find, Serving: i.gate, Log: i.log}),
	}
}

// callable returns endpoints as evals call them.
func callable(s *evalendpoint.Store, c *evalendpoint.Client) *eval.Endpoints {
	return &eval.Endpoints{
		Check: s.Check,
		Complete: func(ctx context.Context, ws tenant.ID, id string, body []byte) ([]byte, time.Duration, error) {
			answer, err := c.Complete(ctx, ws, id, body)
			return answer.Body, answer.Latency, err
		},
	}
}

// chatModels are the models that a workspace can judge with.
type chatModels struct{ i *instance }

// Chats refuses a model that is not a chat model which the workspace may call.
func (c chatModels) Chats(ws tenant.ID, field, model string) error {
	m, err := c.i.callable().Find(ws, model)
	switch {
	case err != nil:
		return fault.Invalid(field, "cannot be called: "+fault.From(err).Message)
	case m.Kind != live.Chat:
		return fault.Invalid(field, fmt.Sprintf("is for %s, not for chat", m.Kind))
	}
	return nil
}

// Upstream identifies what a workspace's id of a model stands for: a model at the address of its provider, or the
// version that an engine serves. An id that is no model stands for itself.
func (c chatModels) Upstream(ws tenant.ID, model string) string {
	m, err := c.i.callable().Find(ws, model)
	if err != nil {
		return model
	}
	return m.Identity()
}
