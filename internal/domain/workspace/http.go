package workspace

import (
	"context"
	"fmt"
	"strings"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
)

// A Handler serves the operations of keys on their own workspace.
type Handler struct {
	logged func(tenant.ID) bool
	steps  []module.Step
}

// NewHandler reports progress through steps, in order.
func NewHandler(logged func(tenant.ID) bool, steps ...module.Step) *Handler {
	return &Handler{logged: logged, steps: steps}
}

// Routes are the operations for keys.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Get("/setup/status", api.Reader, h.status,
			"Is this key live, and what is there to set up next?", api.Inference),
	}
}

// A Status is a workspace's setup progress.
type Status struct {
	Object      string       `json:"object" enum:"setup_status"`
	WorkspaceID tenant.ID    `json:"workspace_id"`
	Role        tenant.Role  `json:"role" enum:"owner,admin,member"`
	Logging     bool         `json:"logging" doc:"Whether chat traffic is being captured"`
	Steps       []StepStatus `json:"steps" nullable:"false"`
	Next        *string      `json:"next" doc:"The first step that is not done; null when all are"`
}

// A StepStatus is one step of a Status.
type StepStatus struct {
	ID     string `json:"id"`
	Done   bool   `json:"done"`
	Action string `json:"action" doc:"What to do; empty when it is done"`
}

func (h *Handler) status(ctx context.Context, caller tenant.Caller, _ api.None) (Status, error) {
	s := Status{
		Object: "setup_status", WorkspaceID: caller.Workspace, Role: caller.Role, Logging: h.logged(caller.Workspace),
	}
	for _, step := range h.steps {
		done, err := step.Done(ctx, caller.Workspace)
		if err != nil {
			return Status{}, fmt.Errorf("setup step %s: %w", step.ID, err)
		}
		line := StepStatus{ID: step.ID, Done: done}
		if !done {
			line.Action = step.Action
			if s.Next == nil {
				s.Next = &step.ID
			}
		}
		s.Steps = append(s.Steps, line)
	}
	return s, nil
}

// Plain is the status as flat lines of key=value.
func (s Status) Plain() string {
	logging := map[bool]string{false: "off", true: "on"}
	state := map[bool]string{false: "todo", true: "done"}
	var out strings.Builder
	fmt.Fprintf(&out, "workspace_id=%s\nrole=%s\nlogging=%s\n", s.WorkspaceID, s.Role, logging[s.Logging])
	for _, step := range s.Steps {
		fmt.Fprintf(&out, "step.%s=%s\n", step.ID, state[step.Done])
	}
	next := ""
	if s.Next != nil {
		next = *s.Next
	}
	fmt.Fprintf(&out, "next=%s\n", next)
	return out.String()
}
