package app

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/api"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/vault"
)

type adminCommand struct {
	configFlag `embed:""`
	Storage    `embed:""`

	Bootstrap     bootstrapCommand   `cmd:"" help:"Make a workspace with an owner, credit and a key."`
	Workspace     workspaceCommand   `cmd:"" help:"List workspaces, and set their defaults."`
	Key           keyCommand         `cmd:"" help:"Mint, list, limit and revoke API keys."`
	Member        memberCommand      `cmd:"" help:"Add, list, promote, demote and remove members."`
	Wallet        walletCommand      `cmd:"" help:"Top up and show a wallet."`
	ProviderKey   providerKeyCommand `cmd:"" help:"Set, list and delete a workspace's own keys at providers."`
	Logging       loggingCommand     `cmd:"" help:"Log a workspace's chat exchanges, or do not."`
	Cache         cacheCommand       `cmd:"" help:"Remember a workspace's answers for an hour, or do not."`
	Evidence      evidenceCommand    `cmd:"" help:"Show or change which proof a workspace asks for before an alias is repointed."`
	Reward        rewardCommand      `cmd:"" help:"List reward sessions, and delete what they scored."`
	Endpoint      endpointCommand    `cmd:"" help:"List dedicated endpoints, and stop any of them."`
	Worker        workerCommand      `cmd:"" help:"Mint, list and revoke the tokens of training workers."`
	Node          nodeCommand        `cmd:"" help:"List, drain and forget the servers of a PostgreSQL database."`
	Usage         usageCommand       `cmd:"" help:"List what a workspace's requests used and cost, newest first."`
	Ledger        ledgerCommand      `cmd:"" help:"Prove the ledger."`
	Audit         auditCommand       `cmd:"" help:"Read who changed what, and prove that no entry was changed or removed."`
	Backup        backupCommand      `cmd:"" help:"Write an encrypted backup of everything but the root key."`
	CheckBackup   checkBackupCommand `cmd:"" help:"Read a backup, and verify its audit trail and its ledger, without restoring it."`
	Restore       restoreCommand     `cmd:"" help:"Read a backup into an empty data folder or database. No server may be running on it."`
	RotateRootKey rotateCommand      `cmd:"" help:"Replace the root key, without downtime."`
	Dashboard     dashboardCommand   `cmd:"" help:"Let people in to the dashboard."`
	SigningKey    signingKeyCommand  `cmd:"" help:"List and rotate the keys that sign certificates."`
}

type asJSON struct {
	JSON bool `help:"Print JSON."`
}

type ofWorkspace struct {
	Workspace string `required:"" placeholder:"NAME" help:"The workspace's name or id."`
}

// dollars is an amount on the command line.
type dollars struct{ money.Nano }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *dollars) UnmarshalText(text []byte) (err error) {
	d.Nano, err = money.Parse(string(text))
	return err
}

type bootstrapCommand struct {
	asJSON     `embed:""`
	Workspace  string  `required:"" placeholder:"NAME" help:"Its name."`
	Email      string  `required:"" placeholder:"EMAIL" help:"Its first owner."`
	BalanceUSD dollars `name:"balance-usd" default:"25" help:"Its first credit."`
}

func (c *bootstrapCommand) Run(a *admin) error {
	var made Bootstrapped
	in := NewWorkspace{Workspace: c.Workspace, Email: c.Email, Balance: c.BalanceUSD.Nano}
	if err := a.post("/admin/bootstrap", in, &made); err != nil {
		return err
	}
	return a.show(c.JSON, made, func(w io.Writer) {
		_, _ = fmt.Fprintf(
			w, "workspace\t%s\nuser\t%s\nAPI key\t%s\n\tshown once: keep it now\n", made.WorkspaceID, made.UserID,
			made.APIKey,
		)
	})
}

type workspaceCommand struct {
	List workspaceList `cmd:"" help:"List workspaces."`
	Show workspaceShow `cmd:"" help:"Show what a workspace has set."`
	Set  workspaceSet  `cmd:"" help:"Set a workspace's defaults."`

	Limits workspaceLimits `cmd:"" help:"Show or change the limits of all keys of a workspace together. They are in force when it returns."`
	Quotas workspaceQuotas `cmd:"" help:"Show or change how many things of each kind a workspace may store."`
}

type workspaceShow struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
}

func (c *workspaceShow) Run(a *admin) error {
	var set workspace.Settings
	if err := a.get("/admin/settings?workspace="+url.QueryEscape(c.Workspace), &set); err != nil {
		return err
	}
	return a.showSettings(c.JSON, set)
}

type workspaceSet struct {
	asJSON           `embed:""`
	ofWorkspace      `embed:""`
	DefaultMaxTokens int64 `required:"" help:"Output tokens of requests that name no maximum; 0 for the server's default."`
}

func (c *workspaceSet) Run(a *admin) error {
	return a.set(c.JSON, c.Workspace, workspace.SettingsChange{DefaultMaxTokens: &c.DefaultMaxTokens})
}

func (a *admin) set(asJSON bool, name string, change workspace.SettingsChange) error {
	var set workspace.Settings
	if err := a.call(http.MethodPut, "/admin/settings", workspace.NewSettings{
		Workspace: name, SettingsChange: change,
	}, &set, repeatable); err != nil {
		return err
	}
	return a.showSettings(asJSON, set)
}

func (a *admin) showSettings(asJSON bool, set workspace.Settings) error {
	return a.show(asJSON, set, func(w io.Writer) {
		_, _ = fmt.Fprintf(
			w, "default_max_tokens\t%d\ncache\t%v\nlog_retention_days\t%d\n", set.DefaultMaxTokens, set.Cache,
			set.LogRetentionDays,
		)
	})
}

type workspaceList struct {
	asJSON `embed:""`
	page   `embed:""`
}

type page struct {
	Limit  int `default:"50" help:"How many, at most."`
	Offset int `default:"0" help:"How many to pass over."`
}

func (p page) query() url.Values {
	return url.Values{"limit": {strconv.Itoa(p.Limit)}, "offset": {strconv.Itoa(p.Offset)}}
}

func (c *workspaceList) Run(a *admin) error {
	return list(a, c.JSON, "/admin/workspaces", c.query(), "ID\tNAME\tMADE", func(ws workspace.Workspace) string {
		return fmt.Sprintf("%s\t%s\t%s", ws.ID, ws.Name, ws.CreatedAt)
	})
}

type keyCommand struct {
	Create keyCreate `cmd:"" help:"Mint a key. It is shown once."`
	List   keyList   `cmd:"" help:"List keys, revoked ones too."`
	Update keyUpdate `cmd:"" help:"Change the limits of a key. They are in force when it returns."`
	Revoke keyRevoke `cmd:"" help:"Revoke a key. When this returns, the key is refused."`
}

type keyCreate struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	Email       string `required:"" placeholder:"EMAIL" help:"The member whom the key acts as."`
	Name        string `default:"default" help:"What it is for."`
	limitFlags  `embed:""`
}

func (c *keyCreate) Run(a *admin) error {
	var made workspace.MintedKey
	in := workspace.NewKey{Workspace: c.Workspace, Email: c.Email, Name: c.Name, LimitsChange: c.change()}
	if err := a.post("/admin/keys", in, &made); err != nil {
		return err
	}
	return a.show(c.JSON, map[string]any{"id": made.ID, "api_key": made.APIKey}, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "id\t%s\nAPI key\t%s\n\tshown once: keep it now\n", made.ID, made.APIKey)
	})
}

type keyList struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	page        `embed:""`
	Email       string `placeholder:"EMAIL" help:"Only the keys that act as this user."`
}

func (c *keyList) Run(a *admin) error {
	query := c.query()
	query.Set("workspace", c.Workspace)
	if c.Email != "" {
		query.Set("email", c.Email)
	}
	return list(a, c.JSON, "/admin/keys", query, fmt.Sprintf(
		keyLine, "ID", "NAME", "USER", "HINT", "STATE", "LAST USED",
	),
		func(k workspace.Key) string { return keyLines(&k) })
}

func when(t *clock.Time) string {
	if t == nil {
		return "-"
	}
	return t.String()
}

type keyRevoke struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	ID          string `required:"" name:"id" placeholder:"KEY_ID" help:"The key's id."`
	Email       string `placeholder:"EMAIL" help:"Only if the key acts as this user."`
}

func (c *keyRevoke) Run(a *admin) error {
	var key workspace.Key
	query := url.Values{"workspace": {c.Workspace}}
	if c.Email != "" {
		query.Set("email", c.Email)
	}
	if err := a.post("/admin/keys/"+url.PathEscape(c.ID)+"/revocation?"+query.Encode(), nil, &key); err != nil {
		return err
	}
	return a.show(c.JSON, key, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "revoked\t%s\t%s\n", key.ID, when(key.RevokedAt))
	})
}

type memberCommand struct {
	Add    memberAdd    `cmd:"" help:"Add a member."`
	List   memberList   `cmd:"" help:"List members."`
	Role   memberRole   `cmd:"" help:"Change a member's role, and with it what the member's keys may do."`
	Remove memberRemove `cmd:"" help:"Remove a member. Their keys are refused from then on."`
}

type memberName struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	Email       string `required:"" placeholder:"EMAIL" help:"The member."`
}

type memberAdd struct {
	memberName `embed:""`
	Role       tenant.Role `default:"member" enum:"owner,admin,member" help:"owner, admin or member."`
}

func (c *memberAdd) Run(a *admin) error {
	return c.send(a, http.MethodPost, c.Role)
}

type memberRole struct {
	memberName `embed:""`
	Role       tenant.Role `required:"" enum:"owner,admin,member" help:"owner, admin or member."`
}

func (c *memberRole) Run(a *admin) error {
	return c.send(a, http.MethodPut, c.Role)
}

func (c *memberName) send(a *admin, method string, role tenant.Role) error {
	var m workspace.Member
	if err := a.call(method, "/admin/members", workspace.Membership{
		Workspace: c.Workspace, Email: c.Email, Role: role,
	}, &m, repeatable); err != nil {
		return err
	}
	return a.show(c.JSON, m, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", m.UserID, m.Email, m.Role) })
}

type memberRemove struct {
	memberName `embed:""`
	Role       tenant.Role `default:"" enum:"owner,admin,member," help:"Only if the member has this role."`
}

func (c *memberRemove) Run(a *admin) error {
	var gone api.Deleted
	query := url.Values{"workspace": {c.Workspace}, "email": {c.Email}}
	if c.Role != "" {
		query.Set("role", string(c.Role))
	}
	if err := a.call(http.MethodDelete, "/admin/members?"+query.Encode(), nil, &gone, once); err != nil {
		return err
	}
	return a.show(c.JSON, gone, func(w io.Writer) { _, _ = fmt.Fprintf(w, "removed\t%s\t%s\n", gone.ID, c.Email) })
}

type memberList struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	page        `embed:""`
}

func (c *memberList) Run(a *admin) error {
	query := c.query()
	query.Set("workspace", c.Workspace)
	return list(a, c.JSON, "/admin/members", query, "USER\tEMAIL\tROLE\tSINCE", func(m workspace.Member) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", m.UserID, m.Email, m.Role, m.CreatedAt)
	})
}

type walletCommand struct {
	Topup walletTopup `cmd:"" help:"Add money."`
	Show  walletShow  `cmd:"" help:"Show the balance, and what is set aside for things such as reward sessions."`
}

type walletTopup struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	AmountUSD   dollars `name:"amount-usd" required:"" placeholder:"USD" help:"How much."`
	Memo        string  `aliases:"note" help:"Why, for the ledger and the statement."`
	Key         string  `name:"idempotency-key" placeholder:"TEXT" help:"Credit at most once for this key, however often the command is repeated within a day: the number of an invoice."`
}

func (c *walletTopup) Run(a *admin) error {
	var b funds.Balance
	if err := a.postWith(c.Key, "/admin/wallet/topups", wallet.TopUp{
		Workspace: c.Workspace, Amount: c.AmountUSD.Nano, Memo: c.Memo,
	}, &b); err != nil {
		return err
	}
	return a.show(c.JSON, b, func(w io.Writer) { printBalance(w, &b) })
}

type walletShow struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
}

func (c *walletShow) Run(a *admin) error {
	var b wallet.Wallet
	if err := a.get("/admin/wallet?workspace="+url.QueryEscape(c.Workspace), &b); err != nil {
		return err
	}
	return a.show(c.JSON, b, func(w io.Writer) {
		printBalance(w, &b.Balance)
		for _, h := range b.Holds {
			_, _ = fmt.Fprintf(w, "%s hold\t%s: $%s of $%s left\n", h.Kind, h.ID, h.Left, h.Amount)
		}
		if b.Owed > 0 {
			_, _ = fmt.Fprintf(w, "owed\t$%s, which the next credit pays\n", b.Owed)
		}
	})
}

func printBalance(w io.Writer, b *funds.Balance) {
	_, _ = fmt.Fprintf(w, "balance\t$%s\nheld\t$%s\nspent\t$%s\nabandoned\t$%s of $%s unpaid in the last 24 hours\n",
		b.Balance, b.Held, b.Spent, b.Excused, b.Allowance)
}

type usageCommand struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	page        `embed:""`
}

func (c *usageCommand) Run(a *admin) error {
	query := c.query()
	query.Set("workspace", c.Workspace)
	return list(a, c.JSON, "/admin/usage", query, "WHEN\tREQUEST\tMODEL\tOUTCOME\tINPUT\tCACHED\tWRITTEN\tOUTPUT\tREASONING\tSEARCHES\tGPU-S\tKEY\tCOST\tCHARGED", func(u wallet.UsageRow) string {
		key := "server's"
		if u.OwnKey {
			key = "own"
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t$%s\t$%s", u.At, u.RequestID, u.Model, u.Outcome,
			u.Input, u.Cached, u.Written, u.Output, u.Reasoning, u.Searches, u.GPU, key, u.Cost, u.Charged)
	})
}

type ledgerCommand struct {
	Verify ledgerVerify `cmd:"" help:"Prove every invariant from the rows, and that no row was changed or removed; fails when one was."`
}

type ledgerVerify struct {
	asJSON    `embed:""`
	sinceHead `embed:""`
}

func (c *ledgerVerify) Run(a *admin) error {
	query, err := c.query(chain.Ledger)
	if err != nil {
		return err
	}
	var proof wallet.Proof
	if err := a.get("/admin/ledger/verification"+query, &proof); err != nil {
		return err
	}
	err = a.show(c.JSON, proof, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "ok\t%v\nentries\t%d\nsum\t$%s\n", proof.OK, proof.Entries, proof.Sum)
		showHead(w, proof.Head)
	})
	if err == nil && !proof.OK {
		err = fmt.Errorf("the ledger does not prove: %s", strings.Join(proof.Problems, "; "))
	}
	return err
}

type rotateCommand struct {
	asJSON `embed:""`
}

func (c *rotateCommand) Run(a *admin) error {
	var r vault.Rotation
	if err := a.call(http.MethodPost, "/admin/root-key/rotation", nil, &r, once); err != nil {
		return err
	}
	return a.show(c.JSON, r, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "root key\t%s → %s\nold key\tkept in %s, for the backups of its day\n\tcopy the new file away from the data\n", r.From, r.To, r.Kept)
	})
}

// list prints one page of a collection, with a word when there is more.
func list[T any](a *admin, asJSON bool, path string, query url.Values, head string, line func(T) string) error {
	var raw jsontext.Value
	if err := a.get(path+"?"+query.Encode(), &raw); err != nil {
		return err
	}
	var all api.List[T]
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	return a.show(asJSON, raw, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, head)
		for _, item := range all.Data {
			_, _ = fmt.Fprintln(w, line(item))
		}
		if all.HasMore {
			_, _ = fmt.Fprintln(w, "… (more: --limit, --offset)")
		}
	})
}

// show prints an answer, for programs or for people.
func (a *admin) show(asJSON bool, v any, table func(io.Writer)) error {
	if asJSON {
		text, err := json.Marshal(v, json.Deterministic(true))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, string(text))
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 2, ' ', 0)
	table(w)
	return w.Flush()
}
