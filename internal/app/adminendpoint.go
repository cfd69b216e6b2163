package app

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"sovereign/internal/domain/endpoint"
)

type endpointCommand struct {
	List endpointList `cmd:"" help:"List the dedicated endpoints of all workspaces, the newest first."`
	Stop endpointStop `cmd:"" help:"Stop a dedicated endpoint of any workspace. Its owner can start it again."`
}

type endpointList struct {
	asJSON `embed:""`
	page   `embed:""`
}

func (c *endpointList) Run(a *admin) error {
	return list(a, c.JSON, "/admin/dedicated-endpoints", c.query(), "ID\tWORKSPACE\tSTATUS\tREPLICAS\tGPUS\tMODEL\tSPENT\tNAME",
		func(e endpoint.Owned) string {
			return fmt.Sprintf("%s\t%s\t%s\t%d of %d\t%d × %s\t%s\t%s\t%s", e.ID, e.Workspace, e.Status, e.Replicas, e.MaxReplicas,
				e.GPUCount, e.GPUType, e.BaseModel, e.Spent, e.Name)
		})
}

type endpointStop struct {
	asJSON `embed:""`
	ID     string `arg:"" help:"The endpoint's id."`
}

func (c *endpointStop) Run(a *admin) error {
	var now endpoint.Endpoint
	if err := a.call(
		http.MethodPost, "/admin/dedicated-endpoints/"+url.PathEscape(c.ID)+"/stop", nil, &now, once,
	); err != nil {
		return err
	}
	return a.show(c.JSON, now, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%s\t%s\n", now.ID, now.Status) })
}
