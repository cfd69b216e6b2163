package tenant_test

import (
	"testing"

	"sovereign/internal/base/tenant"
)

func TestOnlyOwnersAndAdminsManage(t *testing.T) {
	want := map[tenant.Role]bool{tenant.Owner: true, tenant.Admin: true, tenant.Member: false}
	if len(tenant.Roles) != len(want) {
		t.Fatalf("roles: %v", tenant.Roles)
	}
	for _, role := range tenant.Roles {
		manages, known := want[role]
		if !known || !role.Valid() || role.Manages() != manages {
			t.Errorf("%s: valid %v, manages %v", role, role.Valid(), role.Manages())
		}
	}
}

func TestAnInvalidRoleHasNoPermissions(t *testing.T) {
	for _, role := range []tenant.Role{"", "OWNER", "Owner", "root", "owner ", "operator"} {
		if role.Valid() || role.Manages() {
			t.Errorf("%q: valid %v, manages %v", role, role.Valid(), role.Manages())
		}
	}
}

func TestAnActorIsTheKeyAndItsUser(t *testing.T) {
	caller := tenant.Caller{Workspace: "ws_1", User: "usr_1", Key: "key_1", Role: tenant.Admin}
	if got, want := caller.Actor(), (tenant.Actor{Kind: tenant.ActorKey, User: "usr_1", Key: "key_1"}); got != want {
		t.Errorf("want %+v, got %+v", want, got)
	}
}
