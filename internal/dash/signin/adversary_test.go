package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// reviewerLink makes the link of a grant, as the person who grants sees it.
func (s *site) reviewerLink(t *testing.T, by, user tenant.UserID) (token string) {
	t.Helper()
	team := NewTeam(s.store, func() Options { return *s.options.Load() })
	if _, err := s.db.Tx(t.Context(), func(tx *db.Tx) error {
		url, _, err := team.Invite(t.Context(), tx, s.ws, tenant.Actor{Kind: tenant.ActorSession, User: by}, user)
		_, token, _ = strings.Cut(url, "#link=")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return token
}

// Whoever makes a link can open it: an admin who kept one would become the owner that the person is by now.
func TestALinkIntoAWorkspaceOpensNoMembersSession(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		admin := s.browser()
		if _, err := s.workspaces.AddMember(t.Context(), s.ws, tenant.Operator, "admin@one.test", tenant.Admin); err != nil {
			t.Fatal(err)
		}
		admin.enter(t, "admin@one.test")
		_, invited := admin.invite(t, s.ws, "boss@one.test", "member")
		user, err := s.workspaces.Person(t.Context(), "boss@one.test")
		if err != nil {
			t.Fatal(err)
		}
		grant(s, map[tenant.UserID]tenant.ID{user: s.ws})
		kept := s.reviewerLink(t, admin.state(t).UserID, user)
		if _, err := s.workspaces.AddMember(t.Context(), s.ws, tenant.Operator, "boss@one.test", tenant.Owner); err != nil {
			t.Fatal(err)
		}
		admin.wants(t, "POST", "/session/link", quoted("token", kept), 403)
		s.browser().wants(t, "POST", "/session/link", quoted("token", invited), 403)
		if state := admin.state(t); state.Email != "admin@one.test" {
			t.Errorf("%+v", state)
		}
		boss := s.browser()
		boss.enter(t, "boss@one.test")
		boss.wants(t, "POST", "/session/link", quoted("token", invited), 200)
	})
}

// An admin of one workspace makes a person up, and sets a password as that person, before another workspace invites
// the person.
func TestAPasswordFromElsewhereOpensNoWorkspaceThatThePersonJoins(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		eachSite(t, func(t *testing.T, s *site) {
			other, _, err := s.workspaces.Create(t.Context(), tenant.Operator, "other", "chief@other.test")
			if err != nil {
				t.Fatal(err)
			}
			evil, puppet, chief, victim := s.browser(), s.browser(), s.browser(), s.browser()
			evil.enter(t, ownerEmail)
			_, token := evil.invite(t, s.ws, "victim@other.test", "member")
			puppet.wants(t, "POST", "/session/link", quoted("token", token), 200)
			puppet.wants(t, "PUT", "/password", quoted("new", good), 200)
			if leaves {
				if _, err := s.workspaces.RemoveMember(t.Context(), s.ws, tenant.Operator, "victim@other.test", ""); err != nil {
					t.Fatal(err)
				}
			} else {
				victim.enter(t, "victim@other.test") // with a link of the operator's
			}
			chief.enter(t, "chief@other.test")
			_, token = chief.invite(t, other.ID, "victim@other.test", "admin")
			victim.wants(t, "POST", "/session/link", quoted("token", token), 200)
			puppet.wants(t, "GET", "/w/"+string(other.ID)+"/me", "", 401)
			s.browser().wants(t, "POST", "/session/password", quoted("email", "victim@other.test", "password", good), 403)
			victim.wants(t, "PUT", "/password", quoted("new", good+"!"), 200)
		})
	}
}

// The password of a person who opens the invitation in a session that began with it is that person's.
func TestAPersonWhoSignedInWithAPasswordKeepsItInAnotherWorkspace(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		if _, _, err := s.workspaces.Create(t.Context(), tenant.Operator, "other", "two@other.test"); err != nil {
			t.Fatal(err)
		}
		first, b, owner := s.browser(), s.browser(), s.browser()
		first.enter(t, "two@other.test")
		first.wants(t, "PUT", "/password", quoted("new", good), 200)
		b.wants(t, "POST", "/session/password", quoted("email", "two@other.test", "password", good), 200)
		owner.enter(t, ownerEmail)
		_, token := owner.invite(t, s.ws, "two@other.test", "member")
		b.wants(t, "POST", "/session/link", quoted("token", token), 200)
		s.browser().wants(t, "POST", "/session/password", quoted("email", "two@other.test", "password", good), 200)
	})
}

func TestAnInvitationFallsWithWhoMadeIt(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		if _, err := s.workspaces.AddMember(ctx, s.ws, tenant.Operator, "gone@one.test", tenant.Owner); err != nil {
			t.Fatal(err)
		}
		gone := s.browser()
		gone.enter(t, "gone@one.test")
		_, owner := gone.invite(t, s.ws, "puppet1@one.test", "owner")
		_, admin := gone.invite(t, s.ws, "puppet2@one.test", "admin")
		if _, err := s.workspaces.SetRole(ctx, s.ws, tenant.Operator, "gone@one.test", tenant.Admin); err != nil {
			t.Fatal(err)
		}
		s.browser().wants(t, "POST", "/session/link", quoted("token", owner), 403)
		if _, err := s.workspaces.RemoveMember(ctx, s.ws, tenant.Operator, "gone@one.test", ""); err != nil {
			t.Fatal(err)
		}
		s.browser().wants(t, "POST", "/session/link", quoted("token", admin), 403)
	})
}

// What is listed for a person is bounded, and closed queues are not: both may be many more.
func TestAReviewerElsewhereIsElsewhereWhateverIsListed(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		user, err := s.workspaces.Person(t.Context(), "expert@nowhere.test")
		if err != nil {
			t.Fatal(err)
		}
		grant(s, map[tenant.UserID]tenant.ID{user: s.ws})
		s.store.ReviewsElsewhere = func(_ context.Context, _ tenant.UserID, ws tenant.ID) (bool, error) { return ws == s.ws, nil }
		s.browser().wants(t, "POST", "/session/link", quoted("token", s.reviewerLink(t, s.owner, user)), 403)
		b := s.browser()
		b.enter(t, "expert@nowhere.test")
		b.wants(t, "POST", "/session/link", quoted("token", s.reviewerLink(t, s.owner, user)), 200)
	})
}

// One subscriber has a network of IPv6, and could try from another address of it each time.
func TestTheAddressesOfOneSubscriberAreCountedTogether(t *testing.T) {
	p, refused := newPasswords(nil), 0
	for i := range 2 * fromAddress {
		if p.count(t.Context(), "", fmt.Sprintf("2001:db8:1:2::%x", i+1)) != nil {
			refused++
		}
	}
	if refused != fromAddress {
		t.Errorf("%d of %d are refused", refused, 2*fromAddress)
	}
	if err := errors.Join(p.count(t.Context(), "", "2001:db8:1:3::1"), p.count(t.Context(), "", "203.0.113.1"), p.count(t.Context(), "", "socket")); err != nil {
		t.Errorf("others: %v", err)
	}
}

// A grant can be repeated without bound. Were each link to work for its week, one that was lost would stay a way in.
func TestANewLinkForAReviewerReplacesTheOneBefore(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		owner := s.browser()
		owner.enter(t, ownerEmail)
		_, invited := owner.invite(t, s.ws, "expert@nowhere.test", "member")
		user, err := s.workspaces.Person(t.Context(), "expert@nowhere.test")
		if err != nil {
			t.Fatal(err)
		}
		grant(s, map[tenant.UserID]tenant.ID{user: s.ws})
		first, second := s.reviewerLink(t, s.owner, user), s.reviewerLink(t, s.owner, user)
		if n := dbtest.Count(t, s.db, "signin_links WHERE kind = 'invite' AND used_at = 0"); n != 2 {
			t.Errorf("%d links work, want that of the invitation and the last one of the grant", n)
		}
		s.browser().wants(t, "POST", "/session/link", quoted("token", first), 403)
		s.browser().wants(t, "POST", "/session/link", quoted("token", second), 200)
		s.browser().wants(t, "POST", "/session/link", quoted("token", invited), 200)
	})
}

// resetLink makes a link for a member who cannot sign in.
func (b *browser) resetLink(t *testing.T, user tenant.UserID) (token string) {
	t.Helper()
	var link ShownLink
	body := b.wants(t, "POST", "/w/"+string(b.site.ws)+"/members/"+string(user)+"/link", "", 201)
	if err := json.Unmarshal([]byte(body), &link); err != nil {
		t.Fatal(err)
	}
	_, token, _ = strings.Cut(link.URL, "#link=")
	return token
}

// Whoever makes a link can open it: it opens no more than its maker could make a link for when it is opened.
func TestALinkOfAnAdminFallsWithTheRolesOfBoth(t *testing.T) {
	for name, change := range map[string]func(*site) error{
		"the member is an owner by now": func(s *site) error {
			_, err := s.workspaces.SetRole(context.Background(), s.ws, tenant.Operator, "member@one.test", tenant.Owner)
			return err
		},
		"the admin is a member by now": func(s *site) error {
			_, err := s.workspaces.SetRole(context.Background(), s.ws, tenant.Operator, "admin@one.test", tenant.Member)
			return err
		},
		"the admin was removed": func(s *site) error {
			_, err := s.workspaces.RemoveMember(context.Background(), s.ws, tenant.Operator, "admin@one.test", "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachSite(t, func(t *testing.T, s *site) {
				people := map[tenant.Role]tenant.UserID{}
				for _, role := range []tenant.Role{tenant.Admin, tenant.Member} {
					m, err := s.workspaces.AddMember(t.Context(), s.ws, tenant.Operator, string(role)+"@one.test", role)
					if err != nil {
						t.Fatal(err)
					}
					people[role] = m.UserID
				}
				expert, err := s.workspaces.Person(t.Context(), "expert@nowhere.test")
				if err != nil {
					t.Fatal(err)
				}
				grant(s, map[tenant.UserID]tenant.ID{expert: s.ws})
				admin, owner := s.browser(), s.browser()
				admin.enter(t, "admin@one.test")
				owner.enter(t, ownerEmail)
				reset := admin.resetLink(t, people[tenant.Member])
				review := s.reviewerLink(t, people[tenant.Admin], expert)
				if err := change(s); err != nil {
					t.Fatal(err)
				}
				s.browser().wants(t, "POST", "/session/link", quoted("token", reset), 403)
				if !strings.HasPrefix(name, "the member") {
					s.browser().wants(t, "POST", "/session/link", quoted("token", review), 403)
				}
				s.browser().wants(t, "POST", "/session/link", quoted("token", owner.resetLink(t, people[tenant.Member])), 200)
			})
		})
	}
}
