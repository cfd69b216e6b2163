package signin

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const good = "correct horse battery"

// quoted is a JSON body of members and texts in turn.
func quoted(pairs ...string) string {
	var parts []string
	for i := 0; i < len(pairs); i += 2 {
		parts = append(parts, `"`+pairs[i]+`":"`+pairs[i+1]+`"`)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestAPasswordIsSetAfterALinkAndSignsInThen(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		b := s.browser()
		b.enter(t, ownerEmail)
		for _, short := range []string{"short", strings.Repeat("x", 11), strings.Repeat("é", 201)} {
			b.wants(t, "PUT", "/password", quoted("new", short), 400)
		}
		if b.state(t).HasPassword {
			t.Error("there is no password yet")
		}
		b.wants(t, "PUT", "/password", quoted("new", good), 200)
		if !b.state(t).HasPassword {
			t.Error("the password is not shown to be there")
		}
		other := s.browser()
		other.wants(t, "POST", "/session/password", quoted("email", "OWNER@one.test", "password", good), 200)
		if state := other.state(t); !state.SignedIn || state.Email != ownerEmail {
			t.Errorf("%+v", state)
		}
		stored, err := db.One[string](t.Context(), s.db.Across("test"), `SELECT phc FROM passwords`)
		if err != nil || !strings.HasPrefix(stored, "$argon2id$v=19$m=19456,t=2,p=1$") {
			t.Errorf("%s %v", stored, err)
		}
		if n := dbtest.Count(t, s.db, "audit_entries WHERE action = 'password.set'"); n != 1 {
			t.Errorf("%d entries", n)
		}
	})
}

// What is refused does not tell whether an account exists, has a password, or is a member's.
func TestEveryWrongSignInGetsTheSameAnswer(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		b := s.browser()
		b.enter(t, ownerEmail)
		b.wants(t, "PUT", "/password", quoted("new", good), 200)
		for _, email := range []string{"linked@one.test", "left@one.test"} {
			if _, err := s.workspaces.AddMember(ctx, s.ws, tenant.Operator, email, tenant.Member); err != nil {
				t.Fatal(err)
			}
		}
		left := s.browser()
		left.enter(t, "left@one.test")
		left.wants(t, "PUT", "/password", quoted("new", good), 200)
		if _, err := s.workspaces.RemoveMember(ctx, s.ws, tenant.Operator, "left@one.test", ""); err != nil {
			t.Fatal(err)
		}
		answers := map[string]bool{}
		for _, try := range [][2]string{
			{ownerEmail, "wrong password"}, {"linked@one.test", good}, {"left@one.test", good}, {"nobody@nowhere.test", good}, {"x", ""}, {"", ""},
		} {
			got := s.browser().do(t, "POST", "/session/password", quoted("email", try[0], "password", try[1]))
			if got.Code != 403 || got.Header().Get("Set-Cookie") != "" {
				t.Errorf("%v: %d %s", try, got.Code, got.Body)
			}
			answers[got.Body.String()] = true
		}
		if len(answers) != 1 {
			t.Errorf("the answers differ: %v", answers)
		}
	})
}

func TestChangingAPasswordNeedsTheOldOneAndEndsTheOtherSessions(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		b := s.browser()
		b.enter(t, ownerEmail)
		b.wants(t, "PUT", "/password", quoted("new", good), 200)
		a := s.browser()
		a.wants(t, "POST", "/session/password", quoted("email", ownerEmail, "password", good), 200)
		a.wants(t, "PUT", "/password", quoted("new", good+"2"), 403)
		a.wants(t, "PUT", "/password", quoted("current", "wrong", "new", good+"2"), 403)
		// A session that began with a link is fresh for 15 minutes alone.
		if _, err := db.Exec(t.Context(), s.db.Across("test"), `UPDATE sessions SET created_at = $1`, clock.Now().Add(-freshLife-time.Second)); err != nil {
			t.Fatal(err)
		}
		b.wants(t, "PUT", "/password", quoted("new", good+"2"), 403)
		link := s.link(t, SignIn, ownerEmail)
		if text := a.wants(t, "PUT", "/password", quoted("current", good, "new", good+"2"), 200); !strings.Contains(text, `"ended":1`) {
			t.Error(text)
		}
		b.wants(t, "GET", "/sessions", "", 401)
		a.wants(t, "GET", "/sessions", "", 200)
		s.browser().wants(t, "POST", "/session/link", quoted("token", link), 403)
		s.browser().wants(t, "POST", "/session/password", quoted("email", ownerEmail, "password", good), 403)
		s.browser().wants(t, "POST", "/session/password", quoted("email", ownerEmail, "password", good+"2"), 200)
	})
}

// Ten tries of an account and thirty of an address in a quarter of an hour: the next is refused, right or wrong.
func TestTriesAreLimitedByAccountAndByAddress(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d)
		try := func(email string) int {
			return s.browser().do(t, "POST", "/session/password", quoted("email", email, "password", "wrong")).Code
		}
		for range triesPerWindow {
			if got := try("x@one.test"); got != 403 {
				t.Fatalf("a try: %d", got)
			}
		}
		if got := try("X@one.test "); got != 429 {
			t.Errorf("one try too many of an account: %d", got)
		}
		p := newPasswords(nil)
		for n := range fromAddress {
			if err := p.count(t.Context(), strings.Repeat("a", n+1), "192.0.2.1"); err != nil {
				t.Fatalf("try %d: %v", n, err)
			}
		}
		if p.count(t.Context(), "another", "192.0.2.1") == nil {
			t.Error("one try too many of an address is let through")
		}
		if p.count(t.Context(), "another", "192.0.2.2") != nil {
			t.Error("another address is refused")
		}
	})
}

// However many sign in at once, two passwords are hashed at a time.
// TestFewPasswordsAreHashedAtOnce runs on a clock that stands while anything is hashed: a slow machine hashes six too.
func TestFewPasswordsAreHashedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords(nil)
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				if _, err := p.hash(t.Context(), good); err != nil {
					t.Error(err)
				}
				if n := len(p.slots); n > hashesAtOnce {
					t.Errorf("%d at once", n)
				}
			})
		}
		group.Wait()
		if cap(p.slots) != hashesAtOnce || len(p.slots) != 0 {
			t.Errorf("%d places, %d taken", cap(p.slots), len(p.slots))
		}
	})
}

func TestAPHCStringMatchesItsPasswordAlone(t *testing.T) {
	p := newPasswords(nil)
	stored, err := p.hash(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		password, stored string
		want             bool
	}{
		{good, stored, true},
		{good + " ", stored, false},
		{"", stored, false},
		{good, "", false},
		{"", "", false},
		{good, "$argon2i$" + stored, false},
		{good, strings.Replace(stored, "t=2", "t=1", 1), false},
	} {
		if got, err := p.matches(t.Context(), c.password, c.stored); err != nil || got != c.want {
			t.Errorf("%q %q: %v %v", c.password, c.stored, got, err)
		}
	}
	if again, _ := p.hash(t.Context(), good); again == stored {
		t.Error("no salt")
	}
}
