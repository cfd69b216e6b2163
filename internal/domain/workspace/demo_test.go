package workspace_test

import (
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
)

// A closed workspace keeps its row for the ledger, and is found by its id. Nobody comes back into it.
func TestNobodyJoinsAClosedWorkspace(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ws := r.create(t, "closing")
		if err := r.Close(t.Context(), ws, tenant.Operator); err != nil {
			t.Fatal(err)
		}
		_, err := r.AddMember(t.Context(), ws, tenant.Operator, "owner@closing.test", tenant.Owner)
		if refusal := fault.From(err); err == nil || refusal.Status != 404 {
			t.Errorf("a member is added to a closed workspace: %v", err)
		}
		if all, err := r.Members(t.Context(), ws, 10, 0); err != nil || len(all) != 0 {
			t.Errorf("its members: %v %v", all, err)
		}
		again := r.create(t, "closing") // its name is free
		if _, err := r.AddMember(t.Context(), again, tenant.Operator, "two@closing.test", tenant.Member); err != nil {
			t.Errorf("the next of that name: %v", err)
		}
	})
}
