package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/base/secret"
)

// gathered are 600 exchanges and runs with their grades: some that were logged, some runs, most sent along. Every
// fifteenth grade is wrong. A logged exchange has its truth in what was asked or, where the model is simulated, in what
// it answered.
func gathered(t *testing.T, c *caller, model string) []labelled {
	t.Helper()
	const requests, runs, all = 60, 20, 600
	labels := inlines("what", all-requests-runs)
	last := map[int]string{} // requests, by the label whose truth they tell
	for i := range requests {
		truth := verdictOf(i%2 == 0)
		id := c.ask(t, chat(model, fmt.Sprintf("Logged %d [truth=%s]", i, truth)))
		last[len(labels)] = id
		labels = append(labels, labelled{truth: truth, post: object{"request_id": id, "verdict": truth}})
	}
	for i := range runs {
		truth, name := verdictOf(i%2 == 0), fmt.Sprintf("run %d", i)
		c.ask(t, chat(model, fmt.Sprintf("First step of %d [truth=%s]", i, opposite(truth))), "X-Service-Trace-Id", name)
		last[len(labels)] = c.ask(t, chat(model, fmt.Sprintf("Last step of %d [truth=%s]", i, truth)), "X-Service-Trace-Id", name)
		labels = append(labels, labelled{truth: truth, post: object{"trace_id": name, "verdict": truth}})
	}
	c.awaitLogs(t, requests+2*runs)
	if strings.HasPrefix(model, "sim/") {
		rows := map[string]logRow{}
		for _, row := range c.logs(t, "") {
			rows[row.RequestID] = row
		}
		for i, id := range last {
			_, quality, ok := strings.Cut(string(rows[id].Response), "[sim quality=")
			if !ok {
				t.Fatalf("no marker: %s", rows[id].Response)
			}
			labels[i].truth = verdictOf(quality >= "0.5")
			labels[i].post["verdict"] = labels[i].truth
		}
	}
	for i := range labels {
		if i%15 == 7 {
			labels[i].post["verdict"] = opposite(labels[i].truth)
		}
	}
	return labels
}

// roundTrip labels, calibrates, finds the labels that are wrong, rules on them, and calibrates again.
func roundTrip(t *testing.T, server *process, chats, judges string, found func(l *labelled) bool) {
	p, c := server.instance, server.caller()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server logged:\n%s", server.log)
		}
	})
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
	labels := gathered(t, c, chats)
	id := c.criterion(t, judges, nil)
	c.grade(t, id, labels)
	byID, planted := map[string]*labelled{}, 0
	for i := range labels {
		byID[labels[i].ID] = &labels[i]
		if labels[i].planted() {
			planted++
		}
	}

	first := c.calibrated(t, id)
	if first.Progress.Total != len(labels) || !first.Block.Active || first.Block.Failed != 0 || first.Block.Trust == "certified" {
		t.Fatalf("%+v", first)
	}
	if first.Cost <= 0 || first.Cost > first.Estimate {
		t.Errorf("it cost $%s, and the estimate was $%s", first.Cost, first.Estimate)
	}
	p.costs(t, "default", first.ID, first.Cost)
	before, beforeText := c.certificate(t, id)
	if before.Voided || before.Trust != first.Block.Trust || c.judge(t, id).Trust != before.Trust || before.N != first.Block.N {
		t.Fatalf("%+v", before)
	}
	untouched := c.report(t, id)
	if diff := cmp.Diff(untouched.Before, untouched.After); diff != "" || untouched.CertificateVoided || untouched.DisagreementOnly {
		t.Errorf("nothing was ruled on: %s %+v", diff, untouched)
	}

	rules := adjudicated(t, c, id, untouched.Remaining, byID)
	for i := range labels {
		if l := &labels[i]; l.planted() && rules[l.ID] == "" && found(l) {
			t.Errorf("the wrong label %s is not found, and the judge got it right", l.ID)
		}
	}
	voided, _ := c.certificate(t, id)
	if !voided.Voided || !strings.Contains(voided.VoidedReason, "lbl_") || !strings.Contains(voided.VoidedReason, "which it was measured by") || c.judge(t, id).Trust != "none" {
		t.Errorf("%+v", voided)
	}
	ruled := c.report(t, id)
	counts := map[string]int{}
	for _, kind := range rules {
		counts[kind]++
	}
	if !ruled.CertificateVoided || ruled.RemainingDisagreements != 0 || ruled.Adjudicated != len(rules) || ruled.ByKind.LabelError != counts["label_error"] ||
		ruled.ByKind.JudgeError != counts["judge_error"] || ruled.ByKind.Ambiguous != 1 || counts["label_error"] < planted*8/10 {
		t.Errorf("%+v, and the rulings were %v", ruled, counts)
	}
	blindly(t, c, id, ruled, byID)
	t.Logf("of %d labels %d are wrong, and %v are ruled on; %+v", len(labels), planted, counts, ruled.After.Matrix)

	after := c.report(t, id).After
	again := c.calibrated(t, id)
	if diff := cmp.Diff(after, *again.Block); diff != "" {
		t.Errorf("the report foresaw another block: %s", diff)
	}
	if again.Cost != 0 || again.Progress.Total != len(labels)-1 || again.Block.Trust != "certified" {
		t.Errorf("%+v %+v", again, *again.Block)
	}
	if rows, _ := p.spentFor(t, "default", again.ID); rows != 0 {
		t.Errorf("%d questions were asked again", rows)
	}
	certifies(t, server, id, beforeText)
	p.verifyLedger(t)
}

// adjudicated rules on all disagreements: label errors, judge errors, and one that is ambiguous.
func adjudicated(t *testing.T, c *caller, id string, remaining []disagreement, byID map[string]*labelled) map[string]string {
	t.Helper()
	rules, ambiguous := map[string]string{}, false
	for _, d := range remaining {
		l := byID[d.LabelID]
		kind := "judge_error"
		switch {
		case d.HumanVerdict != l.post["verdict"] || d.JudgeVerdict == d.HumanVerdict || d.InReportHalf != l.InReportHalf:
			t.Fatalf("%+v of %+v", d, l)
		case l.planted():
			kind = "label_error"
		case d.InReportHalf && !ambiguous:
			kind, ambiguous = "ambiguous", true
		}
		c.rule(t, d.LabelID, object{"kind": kind, "note": "looked at"})
		rules[d.LabelID] = kind
	}
	if !ambiguous {
		t.Fatalf("the judge of %s has no error in the report half: choose another seed", id)
	}
	return rules
}

// blindly grades the sample of agreements without knowing their grades, until none is left. A label that was wrong, and
// that the judge got wrong too, is one more ruling, and the sample grows by one.
func blindly(t *testing.T, c *caller, id string, r report, byID map[string]*labelled) {
	t.Helper()
	if !r.DisagreementOnly || len(r.AgreementsToReview) != r.Adjudicated {
		t.Errorf("%d agreements to review for %d rulings, %t", len(r.AgreementsToReview), r.Adjudicated, r.DisagreementOnly)
	}
	_, text := c.call(t, http.MethodGet, "/v1/labels/"+r.AgreementsToReview[0].LabelID+"?blind=true", nil, http.StatusOK, nil)
	if strings.Contains(text, `"verdict"`) || !strings.Contains(text, `"subject"`) {
		t.Errorf("a blind label says %s", text)
	}
	for graded := 0; len(r.AgreementsToReview) > 0; r = c.report(t, id) {
		for _, one := range r.AgreementsToReview {
			c.rule(t, one.LabelID, object{"verdict": byID[one.LabelID].truth})
		}
		if graded += len(r.AgreementsToReview); graded > len(byID) {
			t.Fatalf("%d agreements are reviewed, and %d are left", graded, len(r.AgreementsToReview))
		}
	}
	if r.DisagreementOnly {
		t.Error("all agreements are reviewed, and the report says that none was")
	}
}

// certifies verifies a judge's certificate, and one of before a rotation, and that neither can be changed.
func certifies(t *testing.T, server *process, id, before string) {
	t.Helper()
	c := server.caller()
	facts, text := c.certificate(t, id)
	if facts.Voided || facts.Trust != "certified" || c.judge(t, id).Trust != "certified" {
		t.Errorf("%+v", facts)
	}
	server.mustAdmin(t, nil, "signing-key", "rotate", "--json")
	for why, one := range map[string]string{"the first": before, "the last": text} {
		if !verified(t, why, one, server) {
			t.Errorf("%s does not verify", why)
		}
	}
	if changed := strings.Replace(text, `"trust":"certified"`, `"trust":"certifieD"`, 1); changed == text || verified(t, "changed", changed, server) {
		t.Error("a changed byte verifies")
	}
}

func TestTheFullRoundTripOnASimulatedJudge(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	server := p.serve(t, "--config", judgeConfig(t, "http://127.0.0.1:1", nil, map[string]string{
		"chats": "quality: 0.5", "judges": "sensitivity: 0.97, specificity: 0.97",
	}))
	roundTrip(t, server, "sim/chats", "sim/judges", func(*labelled) bool { return false })
}

func TestTheFullRoundTripOnTheWire(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		server := p.serve(t, "--config", judgeConfig(t, provider, map[string]string{"chats": "mock", "judges": "mock?judge&se=0.985&sp=0.985"}, nil))
		roundTrip(t, server, "mock/chats", "mock/judges", func(l *labelled) bool { return providerSays(t, provider, l) == l.truth })
	})
}

// providerSays asks the mock judge directly about a label, with the gateway's prompt.
func providerSays(t *testing.T, provider string, l *labelled) string {
	t.Helper()
	messages, _ := l.post["messages"].([]object)
	if messages == nil {
		return opposite(l.truth) // it is not known by its text
	}
	asked := seenBy(t, provider, "| "+messages[0]["content"].(string)+`\n`)
	if len(asked) != 1 {
		t.Fatalf("%d questions about %v", len(asked), messages)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, provider+"/v1/chat/completions", strings.NewReader(asked[0].Body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer provider-secret")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var whole struct {
		Choices []struct{ Message struct{ Content string } }
	}
	var said struct{ Verdict string }
	if err := json.NewDecoder(response.Body).Decode(&whole); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(whole.Choices[0].Message.Content), &said); err != nil {
		t.Fatal(err)
	}
	return said.Verdict
}
