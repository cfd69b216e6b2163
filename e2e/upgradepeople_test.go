package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"sovereign/internal/base/money"
)

// judgeFacts are what must hold of a judge that was measured before the schema had labels for each person, and rows of
// calibrations for each item.
type judgeFacts struct {
	Criterion, Certificate string // the certificate is the signed text
	Labels                 map[string]int
	Rulings                map[string]string
	Before                 block
	Remaining              int

	Colleague string // the key of another admin
	Item      object // that the owner has graded, with the grade
}

// judged checks that what was measured, graded and ruled on means the same, and that a judge's items can be graded by
// several people from now on.
func (f *judgeFacts) judged(t *testing.T, owner, colleague *caller) {
	t.Helper()
	certificate := func() (is struct {
		Voided    bool
		Signature struct{ JWS string }
	},
	) {
		owner.call(t, http.MethodGet, "/v1/criteria/"+f.Criterion+"/certificate", nil, http.StatusOK, &is)
		return is
	}
	if is := certificate(); is.Voided || is.Signature.JWS != f.Certificate {
		t.Errorf("its certificate: %+v", is)
	}
	report := owner.report(t, f.Criterion)
	for name, is := range map[string]block{"before": report.Before, "after": report.After} {
		if !reflect.DeepEqual(is, f.Before) {
			t.Errorf("its report %s: %+v, want %+v", name, is, f.Before)
		}
	}
	if report.RemainingDisagreements != f.Remaining {
		t.Errorf("%d disagreements remain, want %d", report.RemainingDisagreements, f.Remaining)
	}
	f.graded(t, owner)

	// Another person's grade stands beside the owner's. One that says the same voids nothing; one against it does.
	post := maps.Clone(f.Item)
	post["criterion_id"] = f.Criterion
	owner.call(t, http.MethodPost, "/v1/labels", post, http.StatusConflict, nil)
	var second struct{ ID string }
	colleague.call(t, http.MethodPost, "/v1/labels", post, http.StatusCreated, &second)
	if certificate().Voided {
		t.Error("a second person agrees, and the certificate is void")
	}
	colleague.call(t, http.MethodDelete, "/v1/labels/"+second.ID, nil, http.StatusOK, nil)
	post["verdict"] = opposite(f.Item["verdict"].(string))
	colleague.call(t, http.MethodPost, "/v1/labels", post, http.StatusCreated, nil)
	if after := owner.report(t, f.Criterion).After; !certificate().Voided || after.N != f.Before.N-1 {
		t.Errorf("a second person disagrees: void %v, measured by %d", certificate().Voided, after.N)
	}
}

// graded checks whose the labels are, and how they were ruled on.
func (f *judgeFacts) graded(t *testing.T, owner *caller) {
	t.Helper()
	var labels struct {
		Data []struct {
			ID, Author   string
			Adjudication *struct{ Kind string }
		}
	}
	owner.call(t, http.MethodGet, "/v1/labels?limit=1000", nil, http.StatusOK, &labels)
	authors, rulings := map[string]int{}, map[string]string{}
	for _, l := range labels.Data {
		authors[l.Author]++
		if l.Adjudication != nil {
			rulings[l.ID] = l.Adjudication.Kind
		}
	}
	if !maps.Equal(authors, f.Labels) || !maps.Equal(rulings, f.Rulings) {
		t.Errorf("its labels are by %v, want %v; ruled on %v, want %v", authors, f.Labels, rulings, f.Rulings)
	}
}

// opened checks that the owner of kept data signs in to the dashboard, and sees its usage and its money there: what
// migrations have added up.
func (f *facts) opened(t *testing.T, p instance, server *process) {
	t.Helper()
	var made struct{ URL string }
	p.mustAdmin(t, &made, "dashboard", "link", "--email", f.Owner, "--json")
	_, token, _ := strings.Cut(made.URL, "#link=")
	status, text, cookie := server.dashboard(t, "", "POST", "/session/link", `{"token":"`+token+`"}`)
	var session struct {
		Workspaces []struct {
			ID, Name, Role string
			Demo           bool
		}
	}
	if err := json.Unmarshal([]byte(text), &session); status != 200 || err != nil || len(session.Workspaces) != 1 {
		t.Fatalf("signed in: %d %s %v", status, text, err)
	}
	place := session.Workspaces[0]
	if place.Name != "kept" || place.Role != "owner" || place.Demo {
		t.Errorf("it opens %+v", place)
	}
	read := func(path string, into any) {
		t.Helper()
		status, text, _ := server.dashboard(t, cookie, "GET", "/w/"+place.ID+path, "")
		if err := json.Unmarshal([]byte(text), into); status != 200 || err != nil {
			t.Fatalf("%s: %d %s %v", path, status, text, err)
		}
	}
	var series struct {
		Totals struct {
			Charged money.Nano `json:"charged_usd"`
		}
	}
	read("/usage/series?from="+f.Day+"&to="+f.Day, &series)
	if series.Totals.Charged != f.Spent {
		t.Errorf("its usage: $%s, want $%s", series.Totals.Charged, f.Spent)
	}
	var statement struct {
		Closing json.Number `json:"closing_balance_usd"`
	}
	read("/statements/"+f.Day[:len("2026-11")], &statement)
	if statement.Closing != f.Balance {
		t.Errorf("its statement closes with $%s, want $%s", statement.Closing, f.Balance)
	}
}
