package app

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/store/api"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/chain"
)

type auditCommand struct {
	List   auditList   `cmd:"" default:"withargs" help:"Read who changed what, newest first. Without a workspace: what concerns the whole server."`
	Verify auditVerify `cmd:"" help:"Prove that no entry was changed or removed; fails when one was."`
	Heads  auditHeads  `cmd:"" help:"Print the signed heads of the audit trail and the ledger, to keep them elsewhere."`
}

type auditList struct {
	asJSON    `embed:""`
	page      `embed:""`
	Workspace string `placeholder:"NAME" help:"The workspace's name or id."`
	Action    string `placeholder:"ACTION" help:"Only this action, such as key.revoke."`
}

func (c *auditList) Run(a *admin) error {
	query := c.query()
	if c.Workspace != "" {
		query.Set("workspace", c.Workspace)
	}
	if c.Action != "" {
		query.Set("action", c.Action)
	}
	return list(a, c.JSON, "/admin/audit", query, "WHEN\tWHO\tACTION\tSUBJECT\tBEFORE\tAFTER", func(e audit.Entry) string {
		return fmt.Sprintf(
			"%s\t%s %s\t%s\t%s\t%s\t%s", e.At, e.Actor.Kind, e.Actor.User, e.Action, e.Subject, e.Before, e.After,
		)
	})
}

// sinceHead names a head that was kept elsewhere.
type sinceHead struct {
	Head string `placeholder:"FILE|HASH" help:"A head that was kept, as 'admin audit heads --json' printed it, or its hash: fails unless it is in the chain."`
}

// query returns the query that names the kept head of a chain.
func (h sinceHead) query(name chain.Name) (string, error) {
	kept, err := keptHead(h.Head, name)
	if err != nil || kept == "" {
		return "", err
	}
	return "?head=" + url.QueryEscape(kept), nil
}

// keptHead returns the hash of a kept head: of the chain's line in a file, or the hash itself.
func keptHead(named string, name chain.Name) (string, error) {
	if raw, err := hex.DecodeString(named); named == "" || err == nil && len(raw) == len(chain.Hash{}) {
		return strings.ToLower(named), nil
	}
	text, err := os.ReadFile(named) //nolint:gosec // the operator's own path
	if err != nil {
		return "", fmt.Errorf("--head is neither a hash nor a file: %w", err)
	}
	var kept api.List[SignedHead]
	if err := json.Unmarshal(text, &kept); err != nil {
		return "", fmt.Errorf("--head %s is not what 'admin audit heads --json' prints", named)
	}
	for _, h := range kept.Data {
		if h.Chain == name {
			return h.Hash, nil
		}
	}
	return "", fmt.Errorf("--head %s has no head of the %s chain", named, name)
}

type auditVerify struct {
	asJSON    `embed:""`
	sinceHead `embed:""`
}

func (c *auditVerify) Run(a *admin) error {
	query, err := c.query(chain.Audit)
	if err != nil {
		return err
	}
	var proof chain.Proof
	if err := a.get("/admin/audit/verification"+query, &proof); err != nil {
		return err
	}
	err = a.show(c.JSON, proof, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "ok\t%v\nentries\t%d\n", proof.OK, proof.Entries)
		showHead(w, proof.Head)
	})
	if err == nil && !proof.OK {
		err = errors.New("the audit trail does not prove: " + strings.Join(proof.Problems, "; "))
	}
	return err
}

func showHead(w io.Writer, h *chain.Head) {
	if h != nil {
		_, _ = fmt.Fprintf(w, "head\t%d %s, signed %s\nsince\t%s\n", h.Seq, h.Hash, h.At, h.Since)
	}
}

type auditHeads struct {
	asJSON `embed:""`
}

func (c *auditHeads) Run(a *admin) error {
	return list(a, c.JSON, "/admin/chain-heads", nil, "CHAIN\tENTRIES\tHASH\tSIGNED\tSINCE", func(h SignedHead) string {
		return fmt.Sprintf("%s\t%d\t%s\t%s\t%s", h.Chain, h.Seq, h.Hash, h.At, h.Since)
	})
}
