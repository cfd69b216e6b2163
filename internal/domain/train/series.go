package train

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// A Series is the metrics of a run by step, thinned to a bounded number of points, and what was said of late.
type Series struct {
	Seq     int64    `json:"seq" doc:"Of the last event that is in it; events after it have what followed"`
	Metrics []Metric `json:"metrics" nullable:"false" doc:"In the order in which they were first told"`
	Said    []Event  `json:"messages" nullable:"false" doc:"The last 200 messages, the oldest first"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Series) SchemaName() string { return "TrainingSeries" }

// A Metric is one measure of a run.
type Metric struct {
	Name   string  `json:"name"`
	Points []Point `json:"points" nullable:"false"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Metric) SchemaName() string { return "TrainingMetric" }

// A Point is a measure at a step: of several steps, where the series was thinned.
type Point struct {
	Step int64   `json:"step" doc:"The last one"`
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Point) SchemaName() string { return "TrainingPoint" }

const (
	seriesPage   = 5000 // events that are read at once
	lastMessages = 200
)

// Series reads the metrics and the last messages of a run. What was measured after the checkpoint that a later attempt
// went on from is left out: that attempt measured it again.
func (s *Store) Series(ctx context.Context, ws tenant.ID, runID string, points int) (Series, error) {
	made := Series{Metrics: []Metric{}, Said: []Event{}}
	at := map[string]int{}
	for {
		page, err := db.Query[Event](ctx, s.DB.In(ws), `
			SELECT seq, at, attempt, level, type, step, message, data FROM training_events
			WHERE workspace_id = $1 AND run_id = $2 AND seq > $3 ORDER BY seq LIMIT $4`, runID, made.Seq, seriesPage)
		if err != nil {
			return made, fmt.Errorf("read metrics: %w", err)
		}
		for i := range page {
			e := &page[i]
			if made.Seq = e.Seq; e.Type == "message" {
				e.Data = jsontext.Value("null")
				made.Said = append(made.Said, *e)
			} else if err := made.add(at, e); err != nil {
				return made, err
			}
		}
		made.Said = slices.Delete(made.Said, 0, max(0, len(made.Said)-lastMessages))
		if len(page) < seriesPage {
			break
		}
	}
	for i := range made.Metrics {
		made.Metrics[i].Points = thin(made.Metrics[i].Points, points)
	}
	return made, nil
}

// add adds the metrics of an event. at has the place of each name.
func (s *Series) add(at map[string]int, e *Event) error {
	var data map[string]float64
	if err := json.Unmarshal([]byte(e.Text), &data); err != nil {
		return fmt.Errorf("read the metrics of event %d: %w", e.Seq, err)
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		i, known := at[name]
		if !known {
			i = len(s.Metrics)
			at[name], s.Metrics = i, append(s.Metrics, Metric{Name: name})
		}
		m := &s.Metrics[i]
		for len(m.Points) > 0 && m.Points[len(m.Points)-1].Step >= e.Step {
			m.Points = m.Points[:len(m.Points)-1]
		}
		m.Points = append(m.Points, Point{e.Step, data[name], data[name], data[name]})
	}
	return nil
}

// thin joins neighbours, so that at most so many points are left. Each keeps the lowest and the highest that it stands
// for.
func thin(all []Point, most int) []Point {
	if len(all) <= most {
		return all
	}
	kept := make([]Point, 0, most)
	for i := range most {
		part := all[i*len(all)/most : (i+1)*len(all)/most]
		joined := Point{part[len(part)-1].Step, 0, part[0].Low, part[0].High}
		for _, p := range part {
			joined.Mean += p.Mean / float64(len(part))
			joined.Low, joined.High = min(joined.Low, p.Low), max(joined.High, p.High)
		}
		kept = append(kept, joined)
	}
	return kept
}
