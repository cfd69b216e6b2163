package app

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/workspace"
)

// limitFlags are the limits of a key or a workspace on the command line. What is not given stays as it is.
type limitFlags struct {
	Expires      *expiry   `placeholder:"WHEN" help:"When it expires: in 90d or 12h, at 2027-01-31 or an RFC 3339 time, or never."`
	RPM          *int64    `name:"rpm" placeholder:"N" help:"Inference requests per minute; 0 for no limit."`
	TPM          *int64    `name:"tpm" placeholder:"N" help:"Tokens per minute, input and output; 0 for no limit."`
	Concurrency  *int64    `placeholder:"N" help:"Inference requests at once; 0 for no limit."`
	BudgetUSD    []budget  `name:"budget-usd" placeholder:"USD/PERIOD" help:"What may be spent in a UTC day or month, such as 5/day,100/month; 0/day for no limit."`
	Scope        *string   `enum:"full,inference" placeholder:"SCOPE" help:"full, or inference: calling and listing models alone."`
	Models       *nameList `placeholder:"MODEL,…" help:"The models that may be called: ids, aliases, beginnings with a * at the end; any for all."`
	AllowAddress *nameList `placeholder:"CIDR,…" help:"The addresses from which it may be used; any for all."`
}

// change returns what the flags ask for.
func (f *limitFlags) change() workspace.LimitsChange {
	c := workspace.LimitsChange{RequestsPerMinute: f.RPM, TokensPerMinute: f.TPM, Concurrency: f.Concurrency}
	for i := range f.BudgetUSD {
		if b := &f.BudgetUSD[i]; b.month {
			c.BudgetMonth = &b.amount
		} else {
			c.BudgetDay = &b.amount
		}
	}
	if f.Scope != nil {
		scope := workspace.Scope(*f.Scope)
		c.Scope = &scope
	}
	if f.Expires != nil {
		at := ""
		if f.Expires.at != nil {
			at = f.Expires.at.String()
		}
		c.ExpiresAt = &at
	}
	c.Models, c.AllowedAddresses = f.Models.names(), f.AllowAddress.names()
	return c
}

// An expiry is a time on the command line; nil for never.
type expiry struct{ at *clock.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *expiry) UnmarshalText(text []byte) error {
	at, err := parseExpiry(string(text), time.Now())
	e.at = at
	return err
}

// parseExpiry reads a duration such as 90d or 12h from now, a date, an RFC 3339 time, or never.
func parseExpiry(text string, now time.Time) (*clock.Time, error) {
	const day = 24 * time.Hour
	var at time.Time
	var err error
	switch days, isDays := strings.CutSuffix(text, "d"); {
	case text == "never":
		return nil, nil //nolint:nilnil // nil is never
	case isDays:
		n, bad := strconv.Atoi(days)
		if bad != nil || n <= 0 || n > 36_500 {
			return nil, fmt.Errorf("%q is not a number of days such as 90d", text)
		}
		at = now.Add(time.Duration(n) * day)
	default:
		if in, bad := time.ParseDuration(text); bad == nil && in > 0 {
			at = now.Add(in)
			break
		}
		if at, err = time.Parse(time.DateOnly, text); err != nil {
			at, err = time.Parse(time.RFC3339, text)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a time such as 90d, 12h, 2027-01-31 or never", text)
		}
	}
	made := clock.Of(at)
	return &made, nil
}

// A budget is an amount per period on the command line, such as 5/day.
type budget struct {
	amount money.Nano
	month  bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *budget) UnmarshalText(text []byte) (err error) {
	amount, period, _ := strings.Cut(string(text), "/")
	if period != "day" && period != "month" {
		return fmt.Errorf("%q is not a budget such as 5/day or 100/month", text)
	}
	b.month = period == "month"
	b.amount, err = money.Parse(amount)
	return err
}

// A nameList is names with commas between them, or any.
type nameList workspace.Names

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *nameList) UnmarshalText(text []byte) error {
	if *n = (nameList{}); string(text) != "any" {
		*n = strings.Split(string(text), ",")
	}
	return nil
}

func (n *nameList) names() *workspace.Names { return (*workspace.Names)(n) }

type keyUpdate struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	limitFlags  `embed:""`
	ID          string `required:"" name:"id" placeholder:"KEY_ID" help:"The key's id."`
}

func (c *keyUpdate) Run(a *admin) error {
	var key workspace.Key
	path := "/admin/keys/" + url.PathEscape(c.ID) + "?workspace=" + url.QueryEscape(c.Workspace)
	if err := a.call(http.MethodPatch, path, c.change(), &key, repeatable); err != nil {
		return err
	}
	return a.show(c.JSON, key, func(w io.Writer) { showLimits(w, &key.Limits) })
}

type workspaceLimits struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	limitFlags  `embed:""`
}

func (c *workspaceLimits) Run(a *admin) error {
	var limits workspace.TotalLimits
	path := "/admin/limits?workspace=" + url.QueryEscape(c.Workspace)
	var err error
	if change := c.change(); change == (workspace.LimitsChange{}) {
		err = a.get(path, &limits)
	} else {
		err = a.call(http.MethodPatch, path, change, &limits, repeatable)
	}
	if err != nil {
		return err
	}
	return a.show(c.JSON, limits, func(w io.Writer) { showLimits(w, &limits.Limits) })
}

type workspaceQuotas struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	Set         map[string]int64 `placeholder:"KIND=N;…" help:"Quotas to set, such as aliases=2000."`
}

func (c *workspaceQuotas) Run(a *admin) error {
	var all workspace.StoredQuotas
	path := "/admin/quotas?workspace=" + url.QueryEscape(c.Workspace)
	var err error
	if len(c.Set) == 0 {
		err = a.get(path, &all)
	} else {
		err = a.call(http.MethodPatch, path, workspace.QuotasChange{Quotas: c.Set}, &all, repeatable)
	}
	if err != nil {
		return err
	}
	return a.show(c.JSON, all, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "KIND\tQUOTA\tSTORED")
		for _, q := range all.Quotas {
			_, _ = fmt.Fprintf(w, "%s\t%d\t%d\n", q.Kind, q.Quota, q.Stored)
		}
	})
}

// showLimits prints limits, one a line.
func showLimits(w io.Writer, l *workspace.Limits) {
	all := limitTexts(l)
	if len(all) == 0 {
		all = []string{"no limits"}
	}
	_, _ = fmt.Fprintln(w, strings.Join(all, "\n"))
}

// limitTexts returns each limit in words.
func limitTexts(l *workspace.Limits) (all []string) {
	add := func(set bool, format string, args ...any) {
		if set {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(l.Scope != workspace.ScopeFull, "%s only", l.Scope)
	add(l.RequestsPerMinute > 0, "%d requests/minute", l.RequestsPerMinute)
	add(l.TokensPerMinute > 0, "%d tokens/minute", l.TokensPerMinute)
	add(l.Concurrency > 0, "%d at once", l.Concurrency)
	add(l.BudgetDay > 0, "$%s/day", l.BudgetDay)
	add(l.BudgetMonth > 0, "$%s/month", l.BudgetMonth)
	add(l.ExpiresAt != nil, "until %s", when(l.ExpiresAt))
	for _, name := range l.Models {
		add(true, "model %s", name)
	}
	for _, address := range l.AllowedAddresses {
		add(true, "from %s", address)
	}
	return all
}

// tableWidth is the most columns that a table takes.
const tableWidth = 120

// keyLines returns a key as lines of a table: the key, and its limits below it.
func keyLines(k *workspace.Key) string {
	state := "active"
	switch {
	case k.RevokedAt != nil:
		state = "revoked"
	case k.ExpiresAt != nil && *k.ExpiresAt <= clock.Now():
		state = "expired"
	}
	used := "-"
	if k.LastUsedAt != nil {
		used = k.LastUsedAt.Std().Format("2006-01-02 15:04")
	}
	line := fmt.Sprintf(keyLine, k.ID, cut(k.Name, 18), cut(k.Email, 28), k.Hint, state, used)
	return strings.Join(append([]string{line}, wrapped(limitTexts(&k.Limits))...), "\n")
}

// wrapped returns texts as indented lines that fit the table.
func wrapped(texts []string) (lines []string) {
	const indent = "    "
	line := ""
	for _, text := range texts {
		text = cut(text, tableWidth-len(indent)-1)
		switch {
		case line == "":
			line = indent + text
		case len(line)+len(", ,")+len(text) > tableWidth:
			lines, line = append(lines, line+","), indent+text
		default:
			line += ", " + text
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// keyLine is the format of a key's line: with its columns it has 113 characters.
const keyLine = "%-30s  %-18s  %-28s  %-4s  %-7s  %s"

// cut returns the beginning of a text, of at most n characters.
func cut(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
