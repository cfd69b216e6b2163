// Package module says what a domain hands to the server: one value with its routes, jobs and background work. The
// server wires modules together and knows nothing else of a domain.
package module

import (
	"context"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/job"
)

// A Module is everything that the server needs to know of one domain. Every field may be left empty.
type Module struct {
	Name       string                 // as it stands in log lines
	Routes     []api.Route            // for keys, operators and the public
	Jobs       map[string]job.Work    // what does the jobs of a kind
	Publishers map[string]feed.Source // what puts committed changes of a kind in force
	Background []Loop
	// deletes what is left over; called at the start and every ten minutes, by one node
	Sweep func(context.Context) error
	Start func(context.Context) error // called once before anything is served; its error ends the start
	Setup []Step                      // what a new workspace has to do, in order

	Alarms func(ctx context.Context, ws tenant.ID) ([]Notice, error)     // what somebody should look at
	Waits  func(ctx context.Context, by tenant.Caller) ([]Notice, error) // what waits for the person who asks
}

// A Notice is a line of the dashboard's first page, with the place that it leads to.
type Notice struct {
	Kind    string     `json:"kind" doc:"What it is, such as wallet.low"`
	Subject string     `json:"subject" doc:"The id or the name of what it is about; empty for the workspace"`
	Title   string     `json:"title"`
	Detail  string     `json:"detail" doc:"Why, in words; may be empty"`
	Count   int64      `json:"count" doc:"How many things it stands for; 0 where that says nothing"`
	At      clock.Time `json:"at,omitzero"`
	Link    Link       `json:"link"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Notice) SchemaName() string { return "HomeNotice" }

// A Link is a place of the dashboard: a page and its query string.
type Link struct {
	Page  string `json:"page" doc:"Such as wallet"`
	Query string `json:"query" doc:"Without the question mark; may be empty"`
}

// A Loop runs in the background until its context ends.
type Loop struct {
	Name string
	Run  func(context.Context)
	// Once is set for a loop that one node runs for all. It is called when this node comes to do that work, and its
	// context ends when it no longer does; then it may be called again. Two nodes may overlap for a moment, so its
	// writes must be idempotent.
	Once bool
	// CallsModels is set for a loop that sends requests to models. It ends before the loops that record what they cost.
	CallsModels bool
}

// A Step of setting a workspace up, as GET /v1/setup/status shows it.
type Step struct {
	ID     string
	Action string                                                // what to do when it is not done
	Done   func(ctx context.Context, ws tenant.ID) (bool, error) // called for each request
}

// SchemaName is the type's name in the OpenAPI document.
func (Link) SchemaName() string { return "PageLink" }
