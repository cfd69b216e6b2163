package app

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"sovereign/internal/domain/train"
	"sovereign/internal/store/api"
)

type workerCommand struct {
	Create workerCreate `cmd:"" help:"Mint the token of a training worker. It is printed once."`
	List   workerList   `cmd:"" help:"List training workers, what they can train, and when they last asked for work."`
	Revoke workerRevoke `cmd:"" help:"Revoke a worker's token. What it trains is given to another worker."`
}

type workerCreate struct {
	asJSON    `embed:""`
	Name      string `arg:"" help:"A name for people, such as gpu-1."`
	Workspace string `placeholder:"NAME" help:"The only workspace that the worker trains for; by default it trains for all."`
}

func (c *workerCreate) Run(a *admin) error {
	in := map[string]string{"name": c.Name}
	if c.Workspace != "" {
		in["workspace"] = c.Workspace
	}
	var made train.Minted
	if err := a.call(http.MethodPost, "/admin/workers", in, &made, once); err != nil {
		return err
	}
	return a.show(c.JSON, made, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "worker\t%s\t%s\ntoken\t%s\t(shown once)\n", made.ID, made.Name, made.Token)
	})
}

type workerList struct {
	asJSON `embed:""`
}

func (c *workerList) Run(a *admin) error {
	return list(a, c.JSON, "/admin/workers", url.Values{}, "ID\tNAME\tWORKSPACE\tENGINE\tGPUS\tMODELS\tLAST SEEN", func(w train.Worker) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d × %s\t%d\t%s", w.ID, w.Name, orAll(string(w.Workspace)), w.Info.Engine,
			w.Info.GPUCount, w.Info.GPUType, len(w.Info.Models), when(w.SeenAt))
	})
}

func orAll(name string) string {
	if name == "" {
		return "all"
	}
	return name
}

type workerRevoke struct {
	asJSON `embed:""`
	ID     string `arg:"" help:"The worker's id."`
}

func (c *workerRevoke) Run(a *admin) error {
	var gone api.Deleted
	if err := a.call(http.MethodDelete, "/admin/workers/"+url.PathEscape(c.ID), nil, &gone, once); err != nil {
		return err
	}
	return a.show(c.JSON, gone, func(w io.Writer) { _, _ = fmt.Fprintf(w, "revoked\t%s\n", gone.ID) })
}
