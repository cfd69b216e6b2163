package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/store/api"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// A SignedHead is the end of a chain, signed: `sovereign verify` checks it with the keys of /.well-known/jwks.json.
type SignedHead struct {
	chain.Head

	Signature vault.Signature `json:"signature"`
}

// chainRoutes serve what the audit trail and the ledger can prove.
func (i *instance) chainRoutes() []api.Route {
	return []api.Route{
		api.Get(
			"/audit/verification", api.Operator, i.verifyAuditRoute,
			"Prove that no entry of the audit trail was changed or removed", api.Long,
		),
		api.Get(
			"/chain-heads", api.Operator, i.headsRoute,
			"Read the signed heads of the audit trail and the ledger, to keep them elsewhere",
		),
	}
}

func (i *instance) verifyAuditRoute(
	ctx context.Context, _ tenant.Caller, in chain.Kept,
) (proof chain.Proof, err error) {
	err = i.storage.sealer.Snapshot(ctx, func(all db.Scoped, keys chain.Keys) error {
		proof, err = chain.Verify(ctx, all, keys, chain.Audit, in.Head)
		return err
	})
	return proof, err
}

func (i *instance) headsRoute(ctx context.Context, _ tenant.Caller, in api.Page) (api.List[SignedHead], error) {
	if err := i.storage.sealer.Seal(ctx); err != nil {
		return api.List[SignedHead]{}, err
	}
	heads, err := i.storage.sealer.Heads(ctx)
	all := make([]SignedHead, len(heads))
	for n, h := range heads {
		all[n] = SignedHead{Head: h.Head, Signature: vault.Signature{Alg: "EdDSA", KeyID: h.KeyID, JWS: h.JWS}}
	}
	return api.NewList(in, all), err
}

// firstChained is the first schema that has chains.
const firstChained = 12

// errUnproven reports a backup whose rows are not as they were sealed.
var errUnproven = errors.New("the rows of this backup were changed or removed before it was made")

// verifyRestored checks the root key, the audit trail and the ledger of a restored database, before anything is
// committed. kept is the hash of a head of the audit trail, or empty. It returns what to say of it.
func verifyRestored(ctx context.Context, d *db.DB, root *vault.Root, schema int64, kept string) (string, error) {
	if err := vault.Check(ctx, d, root); err != nil {
		return "", err
	}
	if schema < firstChained {
		return "its release had no chains, so that nothing proves its audit trail and ledger", nil
	}
	keys, err := vault.Inspect(ctx, d, root)
	if err != nil {
		return "", err
	}
	all := d.Across("a backup is verified whole")
	trail, err := chain.Verify(ctx, all, keys, chain.Audit, kept)
	if err != nil {
		return "", err
	}
	ledger, err := wallet.VerifyChain(ctx, all, keys, "")
	if err != nil {
		return "", err
	}
	if problems := slices.Concat(trail.Problems, ledger.Problems); len(problems) > 0 {
		return "", fmt.Errorf("%w: %s", errUnproven, strings.Join(problems, "; "))
	}
	return "its audit trail and its ledger verify", nil
}
