package signin

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// mostStates bounds the sign-ins that were begun and not ended.
const mostStates = 10_000

// keepState stores a sign-in that begins at the identity provider.
func (s *Store) keepState(ctx context.Context, digest live.SessionDigest, nonce, verifier string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		all := tx.Across("nobody is known yet")
		n, err := db.One[int](ctx, all, `SELECT COUNT(*) FROM oidc_states`)
		if err != nil {
			return fmt.Errorf("count sign-ins: %w", err)
		}
		if n >= mostStates {
			return fault.RateLimited.New("too many people sign in at once").In(time.Minute)
		}
		_, err = db.Exec(ctx, all,
			`INSERT INTO oidc_states (digest, nonce, verifier, expires_at) VALUES ($1, $2, $3, $4)`,
			digest[:], nonce, verifier, clock.Now().Add(stateLife))
		return err
	})
	return err
}

// takeState returns what was stored of a sign-in, once.
func (s *Store) takeState(ctx context.Context, state string) (nonce, verifier string, err error) {
	digest := sha256.Sum256([]byte(state))
	type row struct {
		Nonce, Verifier string
		ExpiresAt       clock.Time
	}
	var found *row
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		found, err = db.Maybe[row](ctx, tx.Across("nobody is known yet"),
			`DELETE FROM oidc_states WHERE digest = $1 RETURNING nonce, verifier, expires_at`, digest[:])
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("find a sign-in: %w", err)
	}
	if found == nil || found.ExpiresAt <= clock.Now() {
		return "", "", fault.Forbidden.New("this sign-in was ended already, or begun too long ago; try again")
	}
	return found.Nonce, found.Verifier, nil
}

// EnterByClaim begins a session of the person whom the identity provider names. The person must be a member, a
// reviewer, or invited: an account at the provider alone opens nothing.
func (s *Store) EnterByClaim(ctx context.Context, e entry, who claim) (begun Session, secret string, err error) {
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		if e.user, err = s.claimed(ctx, tx, e.id, who); err != nil {
			return err
		}
		if err := s.acceptAll(ctx, tx, actor(e.id, e.user), e.oldOf(e.user)); err != nil {
			return err
		}
		if err := s.acceptGrants(ctx, tx, actor(e.id, e.user), tenant.Server, e.oldOf(e.user)); err != nil {
			return err
		}
		inside, err := s.belongs(ctx, tx, e.user)
		if err != nil {
			return err
		}
		if !inside {
			return errStranger(who.email)
		}
		begun, secret, err = s.begin(ctx, tx, e)
		return err
	})
	return begun, secret, err
}

func errStranger(email string) error {
	return fault.Forbidden.New("%s is no member of any workspace here, and is not invited; ask an admin", email)
}

// claimed returns the person of an account at the provider. The first sign-in binds the account to the person with its
// verified address. Later ones go by the account: an address that the provider gives to somebody else opens nothing.
func (s *Store) claimed(ctx context.Context, tx *db.Tx, session tenant.SessionID, who claim) (tenant.UserID, error) {
	all := tx.Across(people)
	bound, err := db.Maybe[tenant.UserID](ctx, all,
		`SELECT user_id FROM oidc_subjects WHERE issuer = $1 AND subject = $2`, who.issuer, who.subject)
	if err != nil {
		return "", fmt.Errorf("find an account: %w", err)
	}
	if bound != nil {
		return *bound, nil
	}
	found, err := find(ctx, all, who.email)
	if err != nil {
		return "", err
	}
	if found == nil {
		return "", errStranger(who.email)
	}
	other, err := db.Maybe[string](ctx, all,
		`SELECT subject FROM oidc_subjects WHERE issuer = $1 AND user_id = $2`, who.issuer, found.ID)
	if err != nil {
		return "", fmt.Errorf("find an account: %w", err)
	}
	if other != nil {
		return "", fault.Forbidden.New(
			"%s has signed in here with another account of the identity provider; ask the operator", who.email)
	}
	if _, err := db.Exec(ctx, all,
		`INSERT INTO oidc_subjects (issuer, subject, user_id, created_at) VALUES ($1, $2, $3, $4)`,
		who.issuer, who.subject, found.ID, clock.Now()); err != nil {
		return "", fmt.Errorf("bind an account: %w", err)
	}
	return found.ID, audit.Record(ctx, tx, tenant.Server, actor(
		session, found.ID,
	), "signin.account", string(found.ID), nil,
		map[string]string{"issuer": who.issuer, "subject": who.subject})
}
