package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// nodeRoutes are about the servers of the database.
func (i *instance) nodeRoutes() []api.Route {
	return []api.Route{
		api.Get("/nodes", api.Operator, i.listNodes, "List the servers of this database"),
		api.Post("/nodes/{id}/drain", api.Operator, i.drainNode, "Let a server finish its requests and leave"),
		api.Post("/nodes/{id}/forget", api.Operator, i.forgetNode, "Declare the disk of a server that has left gone"),
	}
}

func (i *instance) listNodes(ctx context.Context, _ tenant.Caller, _ api.None) (api.List[cluster.Node], error) {
	all, err := i.member.List(ctx)
	return api.List[cluster.Node]{Object: "list", Data: all}, err
}

type ofNode struct {
	ID string `path:"id"`
}

func (i *instance) drainNode(ctx context.Context, caller tenant.Caller, in ofNode) (cluster.Node, error) {
	var after cluster.Node
	_, err := i.storage.db.Tx(ctx, func(tx *db.Tx) (err error) {
		var before cluster.Node
		if before, after, err = i.member.Drain(ctx, tx, in.ID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, tenant.Server, caller.Actor(), "node.drain", in.ID, before, after)
	})
	return after, err
}

// A ForgottenNode cannot join any more.
type ForgottenNode struct {
	cluster.Node
	Lost string `json:"lost,omitempty" doc:"What may have been lost with its disk"`
}

func (i *instance) forgetNode(ctx context.Context, caller tenant.Caller, in ofNode) (ForgottenNode, error) {
	var done ForgottenNode
	_, err := i.storage.db.Tx(ctx, func(tx *db.Tx) error {
		before, after, lost, err := i.member.Forget(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		done = ForgottenNode{after, lost}
		return audit.Record(ctx, tx, tenant.Server, caller.Actor(), "node.forget", in.ID, before, done)
	})
	return done, err
}

// settings is a digest of what servers should have in common.
func settings(c *live.Catalog) string {
	sum := sha256.New()
	for _, m := range c.Models() {
		text, err := json.Marshal(m, json.Deterministic(true))
		if err != nil {
			text = []byte(m.ID)
		}
		_, _ = fmt.Fprintf(sum, "%s\n", text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

type nodeCommand struct {
	List   nodeList   `cmd:"" help:"List the servers of this database."`
	Drain  nodeDrain  `cmd:"" help:"Let a server finish its requests and stop, as with SIGTERM."`
	Forget nodeForget `cmd:"" help:"Declare the disk of a server that has left gone. It says what may be lost."`
}

type nodeList struct {
	asJSON `embed:""`
}

const nodeLine = "%s\t%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s"

func (c *nodeList) Run(a *admin) error {
	head := fmt.Sprintf(nodeLine, "ID", "NAME", "ADDRESS", "STATE", "EPOCH", "APPLIED", "SEEN", "RELEASE", "SETTINGS")
	return list(a, c.JSON, "/admin/nodes", url.Values{}, head, func(n cluster.Node) string {
		same := n.Settings
		if n.Differs {
			same += " (differs)"
		}
		return fmt.Sprintf(nodeLine, n.ID, n.Name, n.Address, n.State,
			strconv.FormatInt(n.Epoch, 10), fmt.Sprint(n.Applied), n.SeenAt, n.Release, same)
	})
}

type nodeDrain struct {
	asJSON `embed:""`
	ID     string `required:"" name:"id" placeholder:"NODE_ID" help:"The node's id."`
}

func (c *nodeDrain) Run(a *admin) error {
	var n cluster.Node
	if err := a.call(http.MethodPost, "/admin/nodes/"+url.PathEscape(c.ID)+"/drain", nil, &n, once); err != nil {
		return err
	}
	return a.show(c.JSON, n, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%s\t%s\n", n.State, n.ID) })
}

type nodeForget struct {
	asJSON `embed:""`
	ID     string `required:"" name:"id" placeholder:"NODE_ID" help:"The node's id."`
}

func (c *nodeForget) Run(a *admin) error {
	var n ForgottenNode
	if err := a.call(http.MethodPost, "/admin/nodes/"+url.PathEscape(c.ID)+"/forget", nil, &n, once); err != nil {
		return err
	}
	return a.show(c.JSON, n, func(w io.Writer) { _, _ = fmt.Fprintf(w, "forgotten\t%s\nlost\t%s\n", n.ID, n.Lost) })
}
