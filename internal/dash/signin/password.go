package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/window"
)

// The cost of a password: argon2id with 19 MiB, twice. OWASP asks for no less.
const (
	argonMemory = 19 << 10 // KiB
	argonTime   = 2
	argonSalt   = 16
	argonKey    = 32
)

// Bounds of signing in. Each window counts every try, also one that succeeds, so that the answer does not depend on it.
const (
	hashesAtOnce   = 2               // 19 MiB and a core each
	hashWait       = 5 * time.Second // for a turn; then the visitor is told to come back
	triesPerWindow = 10              // of an account, known or not
	fromAddress    = 30              // of an address, behind which may be an office
	triesWindow    = 15 * time.Minute

	shortestPassword = 12
	longestPassword  = 200
)

// passwords hashes passwords, a few at a time, and counts tries, those at all servers together.
type passwords struct {
	slots     chan struct{}
	accounts  *window.Windows
	addresses *window.Windows
}

func newPasswords(d *db.DB) *passwords {
	return &passwords{
		slots:     make(chan struct{}, hashesAtOnce),
		accounts:  window.New(d, "signin_account", triesPerWindow, triesWindow),
		addresses: window.New(d, "signin_address", fromAddress, triesWindow),
	}
}

// turn waits for one of the few places, and returns what gives it back.
func (p *passwords) turn(ctx context.Context) (func(), error) {
	wait := time.NewTimer(hashWait)
	defer wait.Stop()
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-wait.C:
		return nil, fault.RateLimited.New("too many people sign in at once").In(hashWait)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// count counts a try of an account from an address, and refuses one that is too many. The address is counted first:
// nobody fills the memory with accounts that do not exist.
func (p *passwords) count(ctx context.Context, account, address string) error {
	for _, c := range []struct {
		windows *window.Windows
		name    string
	}{{p.addresses, subscriber(address)}, {p.accounts, account}} {
		if c.name == "" {
			continue
		}
		digest := sha256.Sum256([]byte(c.name)) // the database keeps no list of who tried
		wait, ok, err := c.windows.Allow(ctx, hex.EncodeToString(digest[:]))
		if err != nil {
			return err
		}
		if !ok {
			return fault.RateLimited.New("too many tries; wait, or ask for a link").In(wait)
		}
	}
	return nil
}

// subscriber returns the network of an IPv6 address that one subscriber has, and any other address as it is.
func subscriber(address string) string {
	at, err := netip.ParseAddr(address)
	if err != nil || !at.Unmap().Is6() {
		return address
	}
	network, _ := at.WithZone("").Prefix(64) // never fails
	return network.String()
}

// hash returns a password as a PHC string.
func (p *passwords) hash(ctx context.Context, password string) (string, error) {
	give, err := p.turn(ctx)
	if err != nil {
		return "", err
	}
	defer give()
	var salt [argonSalt]byte
	_, _ = rand.Read(salt[:]) // it never fails
	return phc(salt[:], argon2.IDKey([]byte(password), salt[:], argonTime, argonMemory, 1, argonKey)), nil
}

func phc(salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, argonMemory, argonTime,
		b64.EncodeToString(salt), b64.EncodeToString(key))
}

// matches reports whether a password is the one of a PHC string. An empty string is nobody's: it takes as long.
func (p *passwords) matches(ctx context.Context, password, stored string) (bool, error) {
	give, err := p.turn(ctx)
	if err != nil {
		return false, err
	}
	defer give()
	var memory, rounds uint32
	salt, key := make([]byte, argonSalt), make([]byte, argonKey)
	parts := strings.Split(stored, "$")
	known := len(parts) == 6 && parts[1] == "argon2id"
	if known {
		if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=1", &memory, &rounds); err != nil {
			return false, fmt.Errorf("read a stored password: %w", err)
		}
		if salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
			return false, fmt.Errorf("read a stored password: %w", err)
		}
		if key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
			return false, fmt.Errorf("read a stored password: %w", err)
		}
	} else {
		memory, rounds = argonMemory, argonTime
	}
	made := argon2.IDKey([]byte(password), salt, rounds, memory, 1, uint32(len(key)))
	return subtle.ConstantTimeCompare(made, key) == 1 && known, nil
}

// checkPassword refuses a password that is too short or too long. Length is all that helps.
func checkPassword(field, password, email string) error {
	switch n := utf8.RuneCountInString(password); {
	case n < shortestPassword || n > longestPassword:
		return fault.Invalid(field, fmt.Sprintf("must be %d to %d characters", shortestPassword, longestPassword))
	case strings.EqualFold(password, email):
		return fault.Invalid(field, "must not be the email address")
	}
	return nil
}

// A PasswordEntry signs in with a password.
type PasswordEntry struct {
	Email    string `json:"email" maxLength:"254"`
	Password string `json:"password" maxLength:"1000"`
}

// errPassword is the one refusal of an address and a password that do not go together, whatever the reason.
func errPassword() error { return fault.Forbidden.New("the email address or the password is wrong") }

// errOnly refuses every other way in where the identity provider is the only one.
func errOnly(name string) error {
	return fault.Forbidden.New("signing in here is possible through %s alone", name)
}

func (h *Handler) byPassword(ctx context.Context, caller tenant.Caller, in PasswordEntry) (SessionState, error) {
	e, err := visitor(ctx, caller)
	if err != nil {
		return SessionState{}, err
	}
	if options := h.options(); options.only() {
		return SessionState{}, errOnly(options.OIDC.Name)
	}
	if err := h.passwords.count(ctx, normal(in.Email), e.address); err != nil {
		return SessionState{}, err
	}
	who, stored, err := h.store.password(ctx, in.Email)
	if err != nil {
		return SessionState{}, err
	}
	ok, err := h.passwords.matches(ctx, in.Password, stored)
	if err != nil {
		return SessionState{}, err
	}
	if !ok {
		return SessionState{}, errPassword()
	}
	e.user, e.method = who, ByPassword
	begun, secret, err := h.store.EnterByPassword(ctx, e, stored)
	if err != nil {
		return SessionState{}, err
	}
	return h.entered(ctx, begun, secret)
}

// A NewPassword sets or changes a password.
type NewPassword struct {
	Current string `json:"current,omitempty" maxLength:"1000" doc:"The password so far; not needed within 15 minutes of signing in with a link"`
	New     string `json:"new" maxLength:"1000" doc:"12 to 200 characters"`
}

// A PasswordSet is the answer to a change of a password.
type PasswordSet struct {
	Object string `json:"object" enum:"password_set"`
	Ended  int    `json:"ended" doc:"Other sessions, which ended with the old password"`
}

func (h *Handler) setPassword(ctx context.Context, caller tenant.Caller, in NewPassword) (PasswordSet, error) {
	if options := h.options(); options.only() {
		return PasswordSet{}, errOnly(options.OIDC.Name)
	}
	session, err := h.store.one(ctx, caller.User, caller.Session)
	if err != nil {
		return PasswordSet{}, err
	}
	if err := checkPassword("new", in.New, session.Email); err != nil {
		return PasswordSet{}, err
	}
	if session.Method != ByLink || clock.Now().Sub(session.CreatedAt) > freshLife {
		if err := h.passwords.count(ctx, session.Email, edge.VisitOf(ctx).Address); err != nil {
			return PasswordSet{}, err
		}
		_, stored, err := h.store.password(ctx, session.Email)
		if err != nil {
			return PasswordSet{}, err
		}
		ok, err := h.passwords.matches(ctx, in.Current, stored)
		if err != nil {
			return PasswordSet{}, err
		}
		if !ok {
			return PasswordSet{}, fault.Forbidden.New("current is not the password. " +
				"Without it, sign in with a link, and set a new one within 15 minutes")
		}
	}
	made, err := h.passwords.hash(ctx, in.New)
	if err != nil {
		return PasswordSet{}, err
	}
	n, err := h.store.SetPassword(ctx, caller.Actor(), made)
	return PasswordSet{"password_set", n}, err
}

// password returns the person of an address, and the stored password. Both are empty where there is none.
func (s *Store) password(ctx context.Context, email string) (who tenant.UserID, stored string, err error) {
	type row struct {
		ID  tenant.UserID
		PHC string
	}
	found, err := db.Maybe[row](ctx, s.db.Across(people),
		`SELECT u.id, p.phc FROM users u JOIN passwords p ON p.user_id = u.id WHERE u.email = $1`, normal(email))
	if err != nil {
		return "", "", fmt.Errorf("find a password: %w", err)
	}
	if found == nil {
		return "", "", nil
	}
	return found.ID, found.PHC, nil
}

// EnterByPassword begins a session of a person whose password was the stored one, if it still is.
func (s *Store) EnterByPassword(ctx context.Context, e entry, stored string) (begun Session, secret string, err error) {
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		now, err := db.Maybe[string](ctx, tx.Across(people), `SELECT phc FROM passwords WHERE user_id = $1`, e.user)
		if err != nil {
			return fmt.Errorf("read a password: %w", err)
		}
		inside, err := s.belongs(ctx, tx, e.user)
		if err != nil {
			return err
		}
		if now == nil || *now != stored || !inside {
			return errPassword()
		}
		begun, secret, err = s.begin(ctx, tx, e)
		return err
	})
	return begun, secret, err
}

// SetPassword stores the password of the actor, and ends the actor's other sessions and links.
func (s *Store) SetPassword(ctx context.Context, by tenant.Actor, stored string) (ended int, err error) {
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		if _, err := db.Exec(ctx, tx.Across(people), `
			INSERT INTO passwords (user_id, phc, changed_at) VALUES ($1, $2, $3)
			ON CONFLICT (user_id) DO UPDATE SET phc = excluded.phc, changed_at = excluded.changed_at`,
			by.User, stored, clock.Now()); err != nil {
			return fmt.Errorf("set a password: %w", err)
		}
		if _, err := db.Exec(ctx, tx.Across(people),
			`DELETE FROM signin_links WHERE user_id = $1 AND used_at = 0 AND kind <> $2`, by.User, Invite); err != nil {
			return fmt.Errorf("withdraw links: %w", err)
		}
		if ended, err = s.endAll(ctx, tx, by, by.User, by.Session); err != nil {
			return err
		}
		return audit.Record(ctx, tx, tenant.Server, by, "password.set", string(by.User), nil, nil)
	})
	return ended, err
}

// forgetPassword deletes the password of a person, unless the session but began with it.
func (s *Store) forgetPassword(
	ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID, but tenant.SessionID,
) error {
	n, err := db.Exec(ctx, tx.Across(people), `
		DELETE FROM passwords WHERE user_id = $1 AND NOT EXISTS (
			SELECT 1 FROM sessions WHERE id = $2 AND user_id = $1 AND method = 'password')`, user, but)
	if err != nil {
		return fmt.Errorf("forget a password: %w", err)
	}
	if n == 0 {
		return nil
	}
	return audit.Record(ctx, tx, tenant.Server, by, "password.forget", string(user), nil, nil)
}
