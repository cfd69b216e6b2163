package signin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// invite makes an invitation, and returns it with its token.
func (b *browser) invite(t *testing.T, ws tenant.ID, email, role string) (ShownInvitation, string) {
	t.Helper()
	var made ShownInvitation
	if err := json.Unmarshal([]byte(b.wants(t, "POST", "/w/"+string(ws)+"/invitations", quoted("email", email, "role", role), 201)), &made); err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(made.URL, "#link=")
	return made, token
}

func TestAnInvitationMakesAMemberOnce(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		owner, guest := s.browser(), s.browser()
		owner.enter(t, ownerEmail)
		made, token := owner.invite(t, s.ws, "New@One.test", "admin")
		if made.Email != "new@one.test" || made.Role != tenant.Admin || made.CreatedBy != string(s.owner) {
			t.Errorf("%+v", made)
		}
		list := owner.wants(t, "GET", "/w/"+string(s.ws)+"/invitations", "", 200)
		if !strings.Contains(list, made.ID) || strings.Contains(list, token) || strings.Contains(list, "url") {
			t.Error(list)
		}
		guest.wants(t, "POST", "/session/link", quoted("token", token), 200)
		if state := guest.state(t); len(state.Workspaces) != 1 || state.Workspaces[0].Role != tenant.Admin {
			t.Errorf("%+v", state)
		}
		s.browser().wants(t, "POST", "/session/link", quoted("token", token), 403)
		if list := owner.wants(t, "GET", "/w/"+string(s.ws)+"/invitations", "", 200); strings.Contains(list, made.ID) {
			t.Error("an accepted invitation is open")
		}
		owner.wants(t, "POST", "/w/"+string(s.ws)+"/invitations", quoted("email", "new@one.test", "role", "member"), 409)
		if n := dbtest.Count(t, s.db, "audit_entries WHERE action IN ('invitation.create', 'member.add') AND actor_kind = 'session'"); n != 2 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestAWithdrawnReplacedOrOldInvitationDoesNotWork(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		owner := s.browser()
		owner.enter(t, ownerEmail)
		made, withdrawn := owner.invite(t, s.ws, "a@one.test", "member")
		owner.wants(t, "DELETE", "/w/"+string(s.ws)+"/invitations/"+made.ID, "", 200)
		owner.wants(t, "DELETE", "/w/"+string(s.ws)+"/invitations/"+made.ID, "", 404)
		_, replaced := owner.invite(t, s.ws, "b@one.test", "owner")
		owner.invite(t, s.ws, "b@one.test", "member")
		_, old := owner.invite(t, s.ws, "c@one.test", "member")
		if _, err := db.Exec(t.Context(), s.db.Across("test"), `UPDATE invitations SET expires_at = $1`, clock.Now()); err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{withdrawn, replaced, old} {
			s.browser().wants(t, "POST", "/session/link", quoted("token", token), 403)
		}
		if n := dbtest.Count(t, s.db, "members"); n != 1 {
			t.Errorf("%d members", n)
		}
	})
}

func TestOnlyOwnersInviteOwnersAndMembersInviteNobody(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		users := map[tenant.Role]*browser{}
		for _, role := range []tenant.Role{tenant.Admin, tenant.Member} {
			email := string(role) + "@one.test"
			if _, err := s.workspaces.AddMember(t.Context(), s.ws, tenant.Operator, email, role); err != nil {
				t.Fatal(err)
			}
			users[role] = s.browser()
			users[role].enter(t, email)
		}
		path := "/w/" + string(s.ws) + "/invitations"
		users[tenant.Admin].wants(t, "POST", path, quoted("email", "x@one.test", "role", "owner"), 403)
		users[tenant.Admin].wants(t, "POST", path, quoted("email", "x@one.test", "role", "admin"), 201)
		users[tenant.Member].wants(t, "POST", path, quoted("email", "x@one.test", "role", "member"), 403)
		users[tenant.Member].wants(t, "GET", path, "", 403)
		owner := s.browser()
		owner.enter(t, ownerEmail)
		made, _ := owner.invite(t, s.ws, "y@one.test", "owner")
		users[tenant.Admin].wants(t, "DELETE", path+"/"+made.ID, "", 403)
		users[tenant.Admin].wants(t, "POST", path, quoted("email", "y@one.test", "role", "member"), 403)
		users[tenant.Admin].wants(t, "POST", "/w/"+string(s.ws)+"/members/"+string(s.owner)+"/link", "", 403)
	})
}

// Whoever makes a link can open it. So a link that an admin makes never opens another workspace.
func TestAnAdminCannotGetIntoAnotherWorkspaceByInvitingItsOwner(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		other, _, err := s.workspaces.Create(ctx, tenant.Operator, "other", "victim@other.test")
		if err != nil {
			t.Fatal(err)
		}
		evil, victim := s.browser(), s.browser()
		evil.enter(t, ownerEmail)
		_, token := evil.invite(t, s.ws, "victim@other.test", "member")
		s.browser().wants(t, "POST", "/session/link", quoted("token", token), 403)
		evil.wants(t, "POST", "/session/link", quoted("token", token), 403)
		victim.enter(t, "victim@other.test")
		victim.wants(t, "POST", "/session/link", quoted("token", token), 200)
		if state := victim.state(t); len(state.Workspaces) != 2 {
			t.Errorf("%+v", state)
		}
		user := string(victim.state(t).UserID)
		evil.wants(t, "POST", "/w/"+string(s.ws)+"/members/"+user+"/link", "", 403)
		evil.wants(t, "POST", "/w/"+string(other.ID)+"/members/"+user+"/link", "", 404)
		// A link from before the person joined another workspace does not open that one.
		_, early := evil.invite(t, s.ws, "later@one.test", "member")
		if _, err := s.workspaces.AddMember(ctx, other.ID, tenant.Operator, "later@one.test", tenant.Owner); err != nil {
			t.Fatal(err)
		}
		s.browser().wants(t, "POST", "/session/link", quoted("token", early), 403)
	})
}

func TestAMemberWhoCannotSignInGetsALinkFromAnAdmin(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		member, err := s.workspaces.AddMember(t.Context(), s.ws, tenant.Operator, "two@one.test", tenant.Member)
		if err != nil {
			t.Fatal(err)
		}
		owner := s.browser()
		owner.enter(t, ownerEmail)
		b := s.browser()
		b.wants(t, "POST", "/session/link", quoted("token", owner.resetLink(t, member.UserID)), 200)
		b.wants(t, "PUT", "/password", quoted("new", good), 200)
		owner.wants(t, "POST", "/w/"+string(s.ws)+"/members/usr_none/link", "", 404)
	})
}

// A reviewer need not be a member. The link of the grant lets the person in, and takes nobody else's place.
func TestAReviewersLinkLetsInWhoBelongsNowhereElse(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		user, err := s.workspaces.Person(ctx, "expert@nowhere.test")
		if err != nil {
			t.Fatal(err)
		}
		token := s.reviewerLink(t, s.owner, user)
		s.browser().wants(t, "POST", "/session/link", quoted("token", token), 403) // no grant
		grant(s, map[tenant.UserID]tenant.ID{user: s.ws})
		b := s.browser()
		b.wants(t, "POST", "/session/link", quoted("token", token), 200)
		if state := b.state(t); len(state.Queues) != 1 || len(state.Workspaces) != 0 {
			t.Errorf("%+v", state)
		}
		b.wants(t, "GET", "/w/"+string(s.ws)+"/me", "", 404)
		grant(s, map[tenant.UserID]tenant.ID{user: "ws_elsewhere"})
		s.browser().wants(t, "POST", "/session/link", quoted("token", s.reviewerLink(t, s.owner, user)), 403)
	})
}

// grant makes people reviewers of a queue.
func grant(s *site, all map[tenant.UserID]tenant.ID) {
	s.store.Queues = func(_ context.Context, user tenant.UserID) ([]SessionQueue, error) {
		if ws, ok := all[user]; ok {
			return []SessionQueue{{ws, "rq_1", "a queue"}}, nil
		}
		return nil, nil
	}
}
