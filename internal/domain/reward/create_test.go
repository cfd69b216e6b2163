package reward_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

// What is refused leaves no row, no hold and no audit entry, whatever had been done before the refusal.
func TestARefusedSessionLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		good, unproven := f.certified(30), f.NewCriterion(t)
		few := f.certified(10)
		void := f.certified(30)
		f.ChangeRubric(t, void.ID, "Another one.")
		three := -3.0
		weighted := func(all ...reward.Criterion) reward.Rule { return reward.Rule{Mode: reward.Weighted, Criteria: all} }
		for name, c := range map[string]struct {
			change func(*reward.NewSession)
			status int
			words  string
		}{
			"a long label":       {func(n *reward.NewSession) { n.Label = strings.Repeat("é", 201) }, 400, "label"},
			"no budget":          {func(n *reward.NewSession) { n.Budget = 0 }, 400, "budget_usd"},
			"a negative budget":  {func(n *reward.NewSession) { n.Budget = -1 }, 400, "budget_usd"},
			"a huge budget":      {func(n *reward.NewSession) { n.Budget = 1_000_000*money.Dollar + 1 }, 400, "budget_usd"},
			"too large a budget": {func(n *reward.NewSession) { n.Budget = credit + 1 }, 402, "100"},
			"no judge":           {func(n *reward.NewSession) { n.Reward.CriterionID = "" }, 400, "reward.criterionId is required"},
			"both forms":         {func(n *reward.NewSession) { n.Reward.Criteria = []reward.Criterion{{CriterionID: good.ID}} }, 400, "reward.criteria"},
			"a list and an id":   {func(n *reward.NewSession) { n.Reward.Mode = reward.All }, 400, "reward.criterionId is for the mode single"},
			"an empty list":      {func(n *reward.NewSession) { n.Reward = weighted() }, 400, "1 to 8"},
			"nine judges": {func(n *reward.NewSession) {
				n.Reward = weighted(slices.Repeat([]reward.Criterion{{CriterionID: "x"}}, 9)...)
			}, 400, "1 to 8"},
			"a judge twice": {func(n *reward.NewSession) {
				n.Reward = weighted(reward.Criterion{CriterionID: good.ID}, reward.Criterion{CriterionID: good.ID})
			}, 400, "criteria[1].criterionId is there twice"},
			"a weight for all": {func(n *reward.NewSession) {
				n.Reward = reward.Rule{Mode: reward.All, Criteria: []reward.Criterion{{CriterionID: good.ID, Weight: &three}}}
			}, 400, "weight"},
			"an unknown judge":  {func(n *reward.NewSession) { n.Reward.CriterionID = "crit_x" }, 404, "crit_x"},
			"an unproven judge": {func(n *reward.NewSession) { n.Reward.CriterionID = unproven.ID }, 412, "has no certificate: grade"},
			"one of two": {func(n *reward.NewSession) {
				n.Reward = weighted(reward.Criterion{CriterionID: good.ID}, reward.Criterion{CriterionID: unproven.ID})
			}, 412, "calibrations"},
			"a provisional one":        {func(n *reward.NewSession) { n.Reward.CriterionID = few.ID }, 412, "has the tier provisional, and measured is needed"},
			"a void certificate":       {func(n *reward.NewSession) { n.Reward.CriterionID = void.ID }, 412, "is void (the rubric changed"},
			"a task that is no object": {func(n *reward.NewSession) { n.Tasks = []jsontext.Value{jsontext.Value(`{}`), jsontext.Value(`[1]`)} }, 400, "tasks[1]"},
		} {
			n := wanted(good.ID)
			c.change(n)
			_, err := f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, n)
			t.Run(name, func(t *testing.T) { dbtest.Refused(t, err, c.status, c.words) })
		}
		f.catalog.gone.Store(true)
		_, err := f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, wanted(good.ID))
		dbtest.Refused(t, err, 400, "reward.criterionId cannot be called")
		f.catalog.gone.Store(false)
		_, err = f.store.Create(t.Context(), dbtest.Theirs, dbtest.Ann, wanted(good.ID))
		dbtest.Refused(t, err, 404, good.ID) // another workspace's judge does not exist
		f.quota(0)
		_, err = f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, wanted(good.ID))
		dbtest.Refused(t, err, 409, "its quota of reward_sessions is 0")
		for _, table := range []string{"reward_sessions", "reward_tasks", "named_holds", "audit_entries WHERE action LIKE 'reward_session.%'"} {
			if n := dbtest.Count(t, f.DB, table); n != 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
		}
		if b := wallettest.Shown(f.t, f.wallets, dbtest.Mine); b.Held != 0 || b.Balance != credit {
			t.Errorf("the wallet has %+v", b)
		}
	})
}

// Two sessions cannot hold the same money, and what one has held is free when it ends.
func TestABudgetIsHeldUntilTheEnd(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		most := wanted(c.ID)
		most.Budget = credit
		made := f.create(most)
		if f.held() != credit || made.Spent != 0 || made.Status != reward.Active || made.StoppedAt != nil {
			t.Errorf("$%s are held: %+v", f.held(), made)
		}
		_, err := f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, wanted(c.ID))
		dbtest.Refused(t, err, 402)
		stopped, err := f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		if err != nil || stopped.Status != reward.Stopped || stopped.StoppedAt == nil || f.held() != 0 {
			t.Errorf("$%s are held: %+v %v", f.held(), stopped, err)
		}
		f.create(most)
	})
}

// The certificates of a session are those that were signed, and verify by themselves.
func TestCertificatesArePinnedAsSigned(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.certified(30)
		second := f.certified(30, func(d *criterion.Definition) { d.Name = judgingtest.Ptr("short") })
		half := 0.5
		n := wanted("")
		n.Reward = reward.Rule{Mode: reward.Weighted, Criteria: []reward.Criterion{{CriterionID: second.ID, Weight: &half}, {CriterionID: first.ID}}}
		made := f.create(n)
		keys, err := f.Vault.JWKS(t.Context())
		f.ok(err)
		for i, want := range []string{*second.CertificateID, *first.CertificateID} {
			got := made.Certificates[i]
			if _, err := vault.VerifyDocument(judgingtest.JSON(t, got), keys); got.ID != want || got.Voided || err != nil {
				t.Errorf("certificate %d: %s, want %s: %v", i, got.ID, want, err)
			}
		}
		if r := made.Reward; r.Mode != reward.Weighted || len(r.Criteria) != 2 || *r.Criteria[0].Weight != 0.5 || *r.Criteria[1].Weight != 1 || r.CriterionID != "" {
			t.Errorf("%+v", r)
		}
		f.ChangeRubric(t, first.ID, "Another one.")
		if got := f.get(made.ID).Certificates; !got[1].Voided || got[1].VoidedReason == nil || got[0].Voided {
			t.Errorf("what voids them today: %v %v", got[0].Voided, got[1].Voided)
		}
		page, err := f.store.List(t.Context(), dbtest.Mine, reward.Selection{}, 10, 0)
		if err != nil || len(page) != 1 || !page[0].Certificates[1].Voided {
			t.Errorf("the list: %d %v", len(page), err)
		}
	})
}

// Credentials are in no stored text, and tasks come back in their order.
func TestLabelsTasksAndNamesAreStoredWithoutCredentials(t *testing.T) {
	const canary = "sk-proj-canary0123456789canary0123456789"
	each(t, func(t *testing.T, f *fixture) {
		n := wanted(f.certified(30).ID)
		n.Label = "run with " + canary
		for i := range 120 {
			n.Tasks = append(n.Tasks, jsontext.Value(fmt.Sprintf(`{"n":%d,"key":"%s"}`, i, canary)))
		}
		made := f.create(n)
		_, _, err := f.store.CreateToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, "for "+canary)
		f.ok(err)
		if made.Label != "run with [redacted]" || made.TaskCount != 120 {
			t.Errorf("%q %d", made.Label, made.TaskCount)
		}
		type page struct {
			Data []struct {
				N   int    `json:"n"`
				Key string `json:"key"`
			} `json:"data"`
			HasMore bool `json:"has_more"`
		}
		for offset := 0; offset < 120; offset += 50 {
			_, text := f.client.Ask(t, f.client.Member, "GET", fmt.Sprintf("/v1/reward/sessions/%s/tasks?offset=%d", made.ID, offset), "")
			var got page
			if err := unmarshal(text, &got); err != nil || got.HasMore != (offset < 100) {
				t.Fatalf("from %d: %s %v", offset, text, err)
			}
			for i, task := range got.Data {
				if task.N != offset+i || task.Key != "[redacted]" {
					t.Errorf("task %d: %+v", offset+i, task)
				}
			}
		}
		if found := f.dump(); strings.Contains(found, "canary") {
			t.Error("a credential is stored")
		}
	})
}

// A retry with the same Idempotency-Key, also at the same time, makes one session and holds one budget.
func TestCreatingIsIdempotent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		body := fmt.Sprintf(`{"label":"x","reward":{"mode":"single","criterionId":%q},"budget_usd":1}`, f.certified(30).ID)
		answers := make([]string, 8)
		var group sync.WaitGroup
		for i := range answers {
			group.Go(func() {
				recorder := f.client.Do(t, f.client.Owner, "POST", "/v1/reward/sessions", body, "Idempotency-Key", "one")
				answers[i] = fmt.Sprint(recorder.Code, recorder.Body)
			})
		}
		group.Wait()
		for _, a := range answers {
			if a != answers[0] || !strings.HasPrefix(a, "201") {
				t.Errorf("%s, and another got %s", a, answers[0])
			}
		}
		other := f.client.Do(t, f.client.Owner, "POST", "/v1/reward/sessions", strings.Replace(body, "1}", "2}", 1), "Idempotency-Key", "one")
		if other.Code != 409 {
			t.Errorf("another body: %d %s", other.Code, other.Body)
		}
		if n := dbtest.Count(t, f.DB, "reward_sessions"); n != 1 || f.held() != money.Dollar {
			t.Errorf("%d sessions, $%s held", n, f.held())
		}
		made := decoded[struct {
			ID string `json:"id"`
		}](t, strings.TrimPrefix(answers[0], "201"))
		for range 2 {
			if done := f.client.Do(t, f.client.Owner, "POST", "/v1/reward/sessions/"+made.ID+"/complete", "", "Idempotency-Key", "two"); done.Code != 200 {
				t.Errorf("%d %s", done.Code, done.Body)
			}
		}
		if got := f.get(made.ID); got.Status != reward.Completed || f.held() != 0 {
			t.Errorf("%s, $%s held", got.Status, f.held())
		}
	})
}

// An answer that cannot be stored undoes the session: its hold is undone with it.
func TestARolledBackCreationHoldsNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		body := fmt.Sprintf(`{"reward":{"mode":"single","criterionId":%q},"budget_usd":1}`, f.certified(30).ID)
		f.exec(`DROP TABLE idempotency_keys`)
		f.exec(`CREATE TABLE idempotency_keys (workspace_id TEXT, route TEXT, key TEXT, body_sha256 BYTEA, status BIGINT, answer BYTEA, created_at BIGINT, CHECK (status < 0))`)
		if got := f.client.Do(t, f.client.Owner, "POST", "/v1/reward/sessions", body, "Idempotency-Key", "one"); got.Code != 500 {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
		if n := dbtest.Count(t, f.DB, "reward_sessions"); n != 0 || f.held() != 0 {
			t.Errorf("%d sessions, $%s held", n, f.held())
		}
	})
}

// Every call on another workspace's session is as if there were none.
func TestAnotherWorkspaceSeesNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create(wanted(f.certified(30).ID))
		token, _, err := f.store.CreateToken(t.Context(), dbtest.Mine, dbtest.Ann, made.ID, "x")
		f.ok(err)
		at := "/v1/reward/sessions/" + made.ID
		for _, call := range [][3]string{
			{"GET", at, ""},
			{"GET", at + "/tasks", ""},
			{"GET", at + "/tokens", ""},
			{"DELETE", at, ""},
			{"POST", at + "/complete", ""},
			{"POST", at + "/tokens", `{"name":"x"}`},
			{"DELETE", at + "/tokens/" + token.ID, ""},
		} {
			if status, text := f.client.Ask(t, f.client.Other, call[0], call[1], call[2]); status != 404 || !strings.Contains(text, `"not_found"`) {
				t.Errorf("%v: %d %s", call, status, text)
			}
			want := 403
			if call[0] == "GET" {
				want = 200
			}
			if status, text := f.client.Ask(t, f.client.Member, call[0], call[1], call[2]); status != want {
				t.Errorf("a member, %v: %d %s", call, status, text)
			}
		}
		if status, text := f.client.Ask(t, f.client.Other, "GET", "/v1/reward/sessions", ""); status != 200 || strings.Contains(text, "rs_") {
			t.Errorf("%d %s", status, text)
		}
		if got := f.get(made.ID); got.Status != reward.Active {
			t.Errorf("it is %s", got.Status)
		}
	})
}

func TestSessionsAreListedByStatusAndLabel(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := f.certified(30)
		n := wanted(c.ID)
		first := f.create(n)
		n.Label = "run 2"
		second := f.create(n)
		f.move(first.ID, reward.Failed, "x")
		for query, want := range map[string][]string{
			"": {second.ID, first.ID}, "?status=ACTIVE": {second.ID}, "?status=FAILED": {first.ID}, "?status=STOPPED": nil,
			"?label=run%202": {second.ID}, "?limit=1": {second.ID}, "?limit=1&offset=1": {first.ID}, "?status=FAILED&label=run%202": nil,
		} {
			recorder := f.client.Do(t, f.client.Member, "GET", "/v1/reward/sessions"+query, "")
			list := decoded[struct {
				Data []struct {
					ID string `json:"id"`
				} `json:"data"`
			}](t, recorder.Body.String())
			var got []string
			for _, s := range list.Data {
				got = append(got, s.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", query, got, want)
			}
		}
		f.client.Refuses(t, f.client.Member, "GET", "/v1/reward/sessions?status=ENDED", "", 400, "invalid_parameter", "status")
	})
}
