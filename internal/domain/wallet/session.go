package wallet

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/api"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// A Handler serves a workspace's wallet on the dashboard: what is there, what is held, and the ledger behind it.
type Handler struct {
	store  *Store
	poster *Poster
	sealer *chain.Sealer
}

// Routes are the operations for sessions.
func (h *Handler) Routes() []api.Route {
	return []api.Route{
		api.Get("/wallet", api.SessionMember, h.show, "Show the balance, and what holds money"),
		api.Get("/ledger", api.SessionMember, h.ledger, "List the transfers of the wallet, newest first"),
		api.Get(
			"/ledger/proof", api.SessionMember, h.proof,
			"Check the balances against the ledger's entries, and show the signed heads of its chain",
		),
	}
}

// An OwnWallet is the wallet of a workspace, as its people see it.
type OwnWallet struct {
	Object string     `json:"object" enum:"wallet"`
	Free   money.Nano `json:"free_usd" doc:"What can be spent now: the balance without what is held"`
	funds.Balance
	Owed    money.Nano `json:"owed_usd" doc:"Refunded or disputed payments that the wallet could not give back; the next credit pays them"`
	Running money.Nano `json:"running_usd" doc:"The part of held_usd that running requests hold; the rest is in holds"`
	Holds   []OpenHold `json:"holds" nullable:"false" doc:"Money that is set aside for things, such as reward sessions"`
}

func (h *Handler) show(ctx context.Context, caller tenant.Caller, _ api.None) (OwnWallet, error) {
	holds, err := h.poster.Holds.List(ctx, caller.Workspace)
	if err != nil {
		return OwnWallet{}, err
	}
	balance, err := h.store.Show(ctx, caller.Workspace)
	if err != nil {
		return OwnWallet{}, err
	}
	w := OwnWallet{
		Object: "wallet", Balance: balance, Free: balance.Balance - balance.Held, Running: balance.Held,
		Holds: append([]OpenHold{}, holds...),
	}
	for _, hold := range holds {
		w.Running -= hold.Left
	}
	w.Running = max(0, w.Running)
	w.Owed, err = h.store.Owed(ctx, caller.Workspace)
	return w, err
}

// A Transfer moves money between the accounts of a workspace: its lines sum to zero.
type Transfer struct {
	ID     string         `json:"id"`
	Object string         `json:"object" db:"-" enum:"transfer"`
	Kind   string         `json:"kind" example:"topup"`
	Memo   string         `json:"memo"`
	At     clock.Time     `json:"at"`
	Amount money.Nano     `json:"amount_usd" doc:"What the wallet gained, or lost if it is below 0"`
	Lines  []TransferLine `json:"lines" db:"-" nullable:"false"`
}

// A TransferLine is one entry of the ledger.
type TransferLine struct {
	Account string     `json:"account" example:"wallet"`
	Amount  money.Nano `json:"amount_usd"`
}

type ledgerPage struct {
	Kind   string `query:"kind" maxLength:"50" doc:"Only transfers of this kind, such as topup"`
	Before string `query:"before" maxLength:"100" doc:"The id of a transfer: those before it"`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"How many, at most"`
}

func (h *Handler) ledger(ctx context.Context, caller tenant.Caller, in ledgerPage) (api.List[Transfer], error) {
	all, err := h.store.Transfers(ctx, caller.Workspace, in.Kind, in.Before, in.Limit+1)
	return api.NewList(api.Page{Limit: in.Limit}, all), err
}

// Transfers reads transfers of a wallet, newest first, from before the one with that id on.
func (s *Store) Transfers(ctx context.Context, ws tenant.ID, kind, before string, limit int) ([]Transfer, error) {
	in := s.db.In(ws)
	where, args := `TRUE`, []any{accountWallet, kind, limit}
	if before != "" {
		at, err := db.Maybe[clock.Time](ctx, in,
			`SELECT at FROM ledger_entries WHERE workspace_id = $1 AND transfer_id = $2 AND account = $3`, before, accountWallet)
		if err != nil {
			return nil, fmt.Errorf("find a transfer: %w", err)
		}
		if at == nil {
			return nil, fault.NotFound("transfer", before)
		}
		where, args = `(at < $5 OR at = $5 AND transfer_id < $6)`, append(args, *at, before)
	}
	all, err := db.Query[Transfer](ctx, in, `
		SELECT transfer_id AS id, kind, memo, at, amount FROM ledger_entries
		WHERE workspace_id = $1 AND account = $2 AND ($3 = '' OR kind = $3) AND `+where+`
		ORDER BY at DESC, transfer_id DESC LIMIT $4`, args...)
	if err != nil || len(all) == 0 {
		return all, err
	}
	return all, s.addLines(ctx, in, all)
}

// addLines reads the lines of transfers.
func (s *Store) addLines(ctx context.Context, in db.Scoped, all []Transfer) error {
	places, ids := map[string]int{}, make([]string, len(all))
	for i := range all {
		all[i].Object, places[all[i].ID], ids[i] = "transfer", i, all[i].ID
	}
	args, marks := parameters(ids, 2)
	type row struct {
		TransferID string
		TransferLine
	}
	lines, err := db.Query[row](ctx, in, `
		SELECT transfer_id, account, amount FROM ledger_entries WHERE workspace_id = $1 AND transfer_id IN (`+marks+`)
		ORDER BY transfer_id, line`, args...)
	for _, l := range lines {
		to := &all[places[l.TransferID]]
		to.Lines = append(to.Lines, l.TransferLine)
	}
	return err
}

// A LedgerProof says whether the balances of a workspace are the sums of its entries, and what is signed about all of
// them.
type LedgerProof struct {
	Object   string         `json:"object" enum:"ledger_proof"`
	OK       bool           `json:"ok" doc:"Every balance is the sum of its entries, and all entries sum to 0"`
	Entries  int64          `json:"entries" doc:"Of this workspace"`
	Sum      money.Nano     `json:"sum_usd" doc:"Of all of them; 0 when the ledger is whole"`
	Accounts []AccountProof `json:"accounts" nullable:"false"`
	Heads    []LedgerHead   `json:"heads" nullable:"false" doc:"The signed ends of the chains over the ledger and the audit trail of the server: sovereign verify checks them with /.well-known/jwks.json"`
}

// An AccountProof compares the balance of an account with its entries.
type AccountProof struct {
	Account string     `json:"account"`
	Balance money.Nano `json:"balance_usd"`
	Entries money.Nano `json:"entries_usd"`
}

// A LedgerHead is the end of a chain, signed.
type LedgerHead struct {
	chain.Head

	Signature vault.Signature `json:"signature"`
}

func (h *Handler) proof(ctx context.Context, caller tenant.Caller, _ api.None) (LedgerProof, error) {
	proof, err := h.store.Prove(ctx, caller.Workspace)
	if err != nil {
		return LedgerProof{}, err
	}
	heads, err := h.sealer.Heads(ctx)
	proof.Heads = []LedgerHead{}
	for _, head := range heads {
		proof.Heads = append(proof.Heads, LedgerHead{head.Head, vault.Signature{
			Alg: "EdDSA", KeyID: head.KeyID, JWS: head.JWS,
		}})
	}
	return proof, err
}

// Prove compares the balances of a workspace with its entries, on one state of the database.
func (s *Store) Prove(ctx context.Context, ws tenant.ID) (LedgerProof, error) {
	proof := LedgerProof{Object: "ledger_proof", OK: true, Accounts: []AccountProof{}}
	type row struct {
		AccountProof
		N int64
	}
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		rows, err := db.Query[row](ctx, in, `
			SELECT e.account, COALESCE(b.amount, 0) AS balance, CAST(SUM(e.amount) AS BIGINT) AS entries, COUNT(*) AS n
			FROM ledger_entries e LEFT JOIN ledger_balances b ON b.workspace_id = e.workspace_id AND b.account = e.account
			WHERE e.workspace_id = $1 GROUP BY e.account, b.amount ORDER BY e.account`)
		for _, r := range rows {
			proof.Accounts = append(proof.Accounts, r.AccountProof)
			proof.OK = proof.OK && r.Balance == r.Entries
			proof.Entries, proof.Sum = proof.Entries+r.N, proof.Sum+r.Entries
		}
		return err
	})
	proof.OK = proof.OK && proof.Sum == 0
	if err != nil {
		return LedgerProof{}, fmt.Errorf("prove the ledger of a workspace: %w", err)
	}
	return proof, nil
}
