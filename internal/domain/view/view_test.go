package view

import (
	"strconv"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/quota"
)

func person(ws tenant.ID, user tenant.UserID, role tenant.Role) tenant.Caller {
	return tenant.Caller{Workspace: ws, User: user, Session: tenant.SessionID("ses_" + user), Role: role}
}

var (
	ann   = person(dbtest.Mine, "usr_ann", tenant.Member)
	bob   = person(dbtest.Mine, "usr_bob", tenant.Member)
	chief = person(dbtest.Mine, "usr_chief", tenant.Admin)
	alien = person(dbtest.Theirs, "usr_ann", tenant.Owner)
)

func each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		test(t, NewStore(d))
	})
}

func (s *Store) saved(t *testing.T, by tenant.Caller, name string, shared bool) View {
	t.Helper()
	v, err := s.Create(t.Context(), by, NewView{Page: "logs", Name: name, Query: "model=a&tag=b", Shared: shared})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAViewIsSeenByItsOwnerAndASharedOneByEveryMember(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		own, shared := s.saved(t, ann, "a", false), s.saved(t, ann, "b", true)
		for _, c := range []struct {
			by   tenant.Caller
			sees string
		}{{ann, "ab"}, {bob, "b"}, {chief, "b"}, {alien, ""}} {
			all, err := s.List(t.Context(), c.by, "logs", 10, 0)
			if err != nil {
				t.Fatal(err)
			}
			var names strings.Builder
			for _, v := range all {
				names.WriteString(v.Name)
			}
			if names := names.String(); names != c.sees {
				t.Errorf("%s sees %q, want %q", c.by.User, names, c.sees)
			}
		}
		if got, err := s.Get(t.Context(), bob, shared.ID); err != nil || got != shared {
			t.Errorf("%+v, %v", got, err)
		}
		for _, by := range []tenant.Caller{bob, chief, alien} {
			_, err := s.Get(t.Context(), by, own.ID)
			dbtest.Refused(t, err, 404, own.ID)
		}
		if other, err := s.List(t.Context(), ann, "traces", 10, 0); err != nil || len(other) > 0 {
			t.Errorf("%v, %v", other, err)
		}
	})
}

func TestASharedViewIsChangedByItsOwnerAndByAdmins(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		v, name := s.saved(t, ann, "a", true), "renamed"
		_, err := s.Update(t.Context(), bob, v.ID, Change{Name: &name})
		dbtest.Refused(t, err, 403)
		dbtest.Refused(t, s.Delete(t.Context(), bob, v.ID), 403)
		dbtest.Refused(t, s.Delete(t.Context(), alien, v.ID), 404)
		private := false
		for _, c := range []struct {
			by     tenant.Caller
			change Change
		}{{chief, Change{Name: &name}}, {ann, Change{Shared: &private}}} {
			if _, err := s.Update(t.Context(), c.by, v.ID, c.change); err != nil {
				t.Error(err)
			}
		}
		dbtest.Refused(t, s.Delete(t.Context(), chief, v.ID), 404)
		if err := s.Delete(t.Context(), ann, v.ID); err != nil {
			t.Error(err)
		}
		dbtest.Refused(t, s.Delete(t.Context(), ann, v.ID), 404)
		if n := dbtest.Count(t, s.db, "audit_entries WHERE action LIKE 'view.%'"); n != 4 {
			t.Errorf("%d changes are audited, want 4", n)
		}
	})
}

func TestAViewIsBounded(t *testing.T) {
	for field, n := range map[string]NewView{
		"page": {Page: "Logs!", Name: "a"}, "name": {Page: "logs", Name: strings.Repeat("é", 101)},
		"query": {Page: "logs", Name: "a", Query: strings.Repeat("q", 2049)},
	} {
		_, err := (&Store{}).Create(t.Context(), ann, n)
		dbtest.Refused(t, err, 400, field)
	}
	for _, n := range []NewView{{Page: "logs"}, {Page: "logs", Name: "a\nb"}, {Page: "logs", Name: "a", Query: "a;b=%zz"}} {
		_, err := (&Store{}).Create(t.Context(), ann, n)
		dbtest.Refused(t, err, 400)
	}
	each(t, func(t *testing.T, s *Store) {
		if _, err := quota.Set(t.Context(), s.db, dbtest.Mine, tenant.Operator, map[string]int64{"views": 3}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			s.saved(t, ann, strconv.Itoa(i), false)
		}
		_, err := s.Create(t.Context(), bob, NewView{Page: "logs", Name: "one more"})
		dbtest.Refused(t, err, 409, "views")
	})
}

func TestAViewHoldsNoCredentials(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		v, err := s.Create(t.Context(), ann, NewView{Page: "logs", Name: "a", Query: "tag=ghp_0123456789abcdefghijABCDEFGHIJ012345"})
		if err != nil || strings.Contains(v.Query, "0123456789") {
			t.Errorf("%q, %v", v.Query, err)
		}
	})
}
