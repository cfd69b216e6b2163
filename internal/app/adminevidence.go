package app

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"sovereign/internal/domain/policy"
	"sovereign/internal/grade/trust"
)

type evidenceCommand struct {
	Show evidenceShow `cmd:"" help:"Show which proof a workspace asks for."`
	Set  evidenceSet  `cmd:"" help:"Change which proof a workspace asks for. What is not given stays as it is."`
}

type evidenceShow struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
}

func (c *evidenceShow) Run(a *admin) error {
	var p policy.EvidencePolicy
	if err := a.get(evidencePath(c.Workspace), &p); err != nil {
		return err
	}
	return a.showEvidence(c.JSON, &p)
}

type evidenceSet struct {
	asJSON                   `embed:""`
	ofWorkspace              `embed:""`
	Required                 *bool       `negatable:"" help:"Refuse to repoint an alias without a proof, or do not."`
	MaxAgeDays               *int64      `placeholder:"DAYS" help:"How old a proof may be: 1 to 365."`
	MinTrust                 *trust.Tier `enum:"provisional,measured,calibrated,certified" placeholder:"TIER" help:"How far the judge must be trusted: provisional, measured, calibrated or certified."`
	MaxRegression            *float64    `placeholder:"SHARE" help:"How much lower the pass rate may be than that of the model before, such as 0.05."`
	Confidence               *float64    `placeholder:"SHARE" help:"Of the proof: 0.5 to 0.9999."`
	MaxUnprovenCanaryPercent *int64      `placeholder:"PERCENT" help:"The share of a canary that needs no proof: 0 to 100. A canary of 100 always needs one."`
}

func (c *evidenceSet) Run(a *admin) error {
	change := policy.EvidencePolicyChange{
		Required: c.Required, MaxAgeDays: c.MaxAgeDays, MinTrust: c.MinTrust, MaxRegression: c.MaxRegression,
		Confidence: c.Confidence, MaxUnprovenCanaryPercent: c.MaxUnprovenCanaryPercent,
	}
	var p policy.EvidencePolicy
	if err := a.call(http.MethodPatch, evidencePath(c.Workspace), change, &p, repeatable); err != nil {
		return err
	}
	return a.showEvidence(c.JSON, &p)
}

func evidencePath(workspace string) string {
	return "/admin/evidence?workspace=" + url.QueryEscape(workspace)
}

func (a *admin) showEvidence(asJSON bool, p *policy.EvidencePolicy) error {
	return a.show(asJSON, p, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "required\t%v\nmax_age_days\t%d\nmin_trust\t%s\n"+
			"max_regression\t%v\nconfidence\t%v\nmax_unproven_canary_percent\t%d\n",
			p.Required, p.MaxAgeDays, p.MinTrust, p.MaxRegression, p.Confidence, p.MaxUnprovenCanaryPercent)
	})
}
