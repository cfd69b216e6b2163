package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// judgeConfig writes a configuration with models of the mock provider, as mock/NAME, and simulated ones, as
// sim/NAME.
func judgeConfig(t *testing.T, provider string, models, simulated map[string]string) string {
	t.Helper()
	path := mockConfig(t, provider, models)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var more strings.Builder
	for name, sim := range simulated {
		fmt.Fprintf(&more, "  - {id: sim/%s, provider: sim, kind: chat, context_window: 128000, max_output_tokens: 4096, sim: {%s}, price: {input_per_mtok_usd: 2.5, output_per_mtok_usd: 10}}\n", name, sim)
	}
	path = filepath.Join(t.TempDir(), "judges.yaml")
	writeFile(t, path, string(text)+more.String())
	return path
}

// call sends JSON, and reads the answer into something, if it is not nil. Its status must be as wanted, unless that is
// 0.
func (c *caller) call(t *testing.T, method, path string, body any, want int, into any) (status int, text string) {
	t.Helper()
	sent := []byte{}
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	var answer []byte
	untilServing(t, func() (int, []byte) {
		status, answer = c.send(t, method, path, sent)
		return status, answer
	})
	if want != 0 && status != want {
		t.Fatalf("%s %s: %d, not %d: %.2000s", method, path, status, want, answer)
	}
	if into != nil && status < 300 {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
	return status, string(answer)
}

// send sends a body once, and reads the answer.
func (c *caller) send(t *testing.T, method, path string, body []byte) (status int, answer []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.address+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer c.client.CloseIdleConnections() // a test that polls makes many callers
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		t.Fatalf("%s %s: %d: %v", method, path, response.StatusCode, err)
	}
	return response.StatusCode, answer
}

type object = map[string]any

// A labelled is a label: as it is posted, the true grade, and what the server returned.
type labelled struct {
	post         object
	truth        string
	ID           string `json:"id"`
	InReportHalf bool   `json:"in_report_half"`
}

// planted reports whether its label is wrong.
func (l *labelled) planted() bool { return l.post["verdict"] != l.truth }

func verdictOf(pass bool) string {
	if pass {
		return "pass"
	}
	return "fail"
}

func opposite(verdict string) string { return verdictOf(verdict == "fail") }

// inline is an exchange that is not in the logs. Its text states the truth to the mock judge and to the simulated one.
func inline(text, truth string) labelled {
	quality := map[string]string{"pass": "0.90", "fail": "0.10"}[truth]
	return labelled{truth: truth, post: object{
		"messages": []object{{"role": "user", "content": "Question: " + text}},
		"response": object{"role": "assistant", "content": fmt.Sprintf("Answer: %s [truth=%s] [sim quality=%s]", text, truth, quality)},
		"verdict":  truth,
	}}
}

// inlines are n such exchanges. Every second one is good.
func inlines(what string, n int) []labelled {
	all := make([]labelled, n)
	for i := range all {
		all[i] = inline(fmt.Sprintf("%s %d", what, i), verdictOf(i%2 == 0))
	}
	return all
}

// grade posts labels for a criterion.
func (c *caller) grade(t *testing.T, criterion string, all []labelled) {
	t.Helper()
	posts := make([]object, len(all))
	for i := range all {
		all[i].post["criterion_id"] = criterion
		posts[i] = all[i].post
	}
	var made struct{ Data []labelled }
	c.call(t, http.MethodPost, "/v1/labels", object{"labels": posts}, http.StatusCreated, &made)
	if len(made.Data) != len(all) {
		t.Fatalf("%d labels of %d", len(made.Data), len(all))
	}
	for i, l := range made.Data {
		all[i].ID, all[i].InReportHalf = l.ID, l.InReportHalf
	}
}

// criterion makes a judge.
func (c *caller) criterion(t *testing.T, model string, more object) string {
	t.Helper()
	body := object{"name": "Right", "rubric": "The response is right.", "judge_model": model}
	for name, value := range more {
		body[name] = value
	}
	var made struct{ ID string }
	c.call(t, http.MethodPost, "/v1/criteria", body, http.StatusCreated, &made)
	return made.ID
}

// A work is a job of any kind: a calibration, a scan, a draft.
type work struct {
	ID       string
	Status   string
	Progress struct{ Done, Total int }
	Block    *block
	Result   *rates
	Rubric   *string
	Criteria []object
	Cost     money.Nano `json:"cost_usd"`
	Estimate money.Nano `json:"estimated_cost_usd"`
	Error    *string
}

func (w *work) ended() bool {
	return w.Status == "DONE" || w.Status == "FAILED" || w.Status == "CANCELLED"
}

type matrix struct{ TP, FP, TN, FN int }

type block struct {
	N      int
	Matrix matrix
	Se, Sp *float64
	SeCI   *[2]float64 `json:"se_ci"`
	SpCI   *[2]float64 `json:"sp_ci"`
	Kappa  *float64
	Trust  string
	Active bool `json:"holdout_active"`
	Failed int
}

type rates struct {
	N, Passes, Failed int
	Rate              *float64
	Corrected         *float64    `json:"corrected_rate"`
	CorrectedCI       *[2]float64 `json:"corrected_rate_ci"`
	NotCorrected      *string     `json:"not_corrected"`
	Certificate       *string     `json:"certificate_id"`
	Failing           []object    `json:"failing_examples"`
}

// begin starts a job.
func (c *caller) begin(t *testing.T, path string, body any) (w work) {
	t.Helper()
	c.call(t, http.MethodPost, path, body, http.StatusAccepted, &w)
	return w
}

func (c *caller) wait(t *testing.T, path string) (w work) {
	t.Helper()
	eventually(t, path+" ends", func() bool {
		w = work{}
		c.call(t, http.MethodGet, path, nil, http.StatusOK, &w)
		return w.ended()
	})
	return w
}

// calibrate calibrates a judge to the end.
func (c *caller) calibrate(t *testing.T, criterion string) work {
	t.Helper()
	path := "/v1/criteria/" + criterion + "/calibrations"
	return c.wait(t, path+"/"+c.begin(t, path, nil).ID)
}

// calibrated is calibrate for one that must succeed.
func (c *caller) calibrated(t *testing.T, criterion string) work {
	t.Helper()
	w := c.calibrate(t, criterion)
	if w.Status != "DONE" || w.Block == nil || w.Progress.Done != w.Progress.Total {
		t.Fatalf("%+v: %v", w, deref(w.Error))
	}
	return w
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

type disagreement struct {
	LabelID      string `json:"label_id"`
	RequestID    *string
	JudgeVerdict string `json:"judge_verdict"`
	HumanVerdict string `json:"human_verdict"`
	Direction    string
	InReportHalf bool `json:"in_report_half"`
}

type report struct {
	Before, After block
	Adjudicated   int
	ByKind        struct {
		LabelError int `json:"label_error"`
		JudgeError int `json:"judge_error"`
		Ambiguous  int
	} `json:"by_kind"`
	RemainingDisagreements int `json:"remaining_disagreements"`
	Remaining              []disagreement
	CertificateVoided      bool `json:"certificate_voided"`
	AgreementsToReview     []struct {
		LabelID string `json:"label_id"`
	} `json:"agreements_to_review"`
	DisagreementOnly bool `json:"after_is_disagreement_only"`
}

func (c *caller) report(t *testing.T, criterion string) (r report) {
	t.Helper()
	c.call(t, http.MethodGet, "/v1/criteria/"+criterion+"/adjudication", nil, http.StatusOK, &r)
	return r
}

func (c *caller) rule(t *testing.T, label string, ruling object) {
	t.Helper()
	c.call(t, http.MethodPost, "/v1/labels/"+label+"/adjudication", ruling, http.StatusOK, nil)
}

type criterion struct {
	Trust   string
	Version int
	Shots   []string `json:"few_shot_labels"`
}

func (c *caller) judge(t *testing.T, id string) (j criterion) {
	t.Helper()
	c.call(t, http.MethodGet, "/v1/criteria/"+id, nil, http.StatusOK, &j)
	return j
}

type certificateFacts struct {
	ID, Trust    string
	N            int
	Voided       bool
	VoidedReason string `json:"voided_reason"`
	Signature    struct {
		KeyID string `json:"key_id"`
	}
}

// certificate reads a judge's certificate, decoded and as text.
func (c *caller) certificate(t *testing.T, criterion string) (facts certificateFacts, text string) {
	t.Helper()
	_, text = c.call(t, http.MethodGet, "/v1/criteria/"+criterion+"/certificate", nil, http.StatusOK, &facts)
	return facts, text
}

// ask asks a model in an ordinary request, which is logged if the workspace logs, and returns its id.
func (c *caller) ask(t *testing.T, body string, headers ...string) string {
	t.Helper()
	with := *c
	with.header = http.Header{}
	for i := 0; i < len(headers); i += 2 {
		with.header.Set(headers[i], headers[i+1])
	}
	a := with.must(t, body)
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return a.id()
}

// awaitLogs waits until so many exchanges are logged.
func (c *caller) awaitLogs(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d logged exchanges", n), func() bool {
		var page struct{ Total int }
		c.call(t, http.MethodGet, "/v1/logs?limit=1", nil, http.StatusOK, &page)
		return page.Total >= n
	})
}

// spentFor sums what a workspace was charged for one origin: a key, a calibration, a criterion. Usage is posted a
// little later.
func (p instance) spentFor(t *testing.T, workspace, origin string) (rows int, sum money.Nano) {
	t.Helper()
	for _, row := range p.usage(t, workspace) {
		if row.KeyID == origin {
			rows, sum = rows+1, sum+row.Charged
		}
	}
	return rows, sum
}

// costs fails the test unless the usage of an origin adds up to its cost.
func (p instance) costs(t *testing.T, workspace, origin string, cost money.Nano) {
	t.Helper()
	var sum money.Nano
	var rows int
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if rows, sum = p.spentFor(t, workspace, origin); sum == cost {
			return
		}
	}
	t.Errorf("%s cost $%s, and its %d usage rows come to $%s", origin, cost, rows, sum)
}
