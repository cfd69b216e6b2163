package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/live"
)

func judgeText(t fataler, text string) judgement {
	t.Helper()
	var v judgement
	if err := json.Unmarshal([]byte(text), &v, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if pass := v.Verdict == "pass"; (!pass && v.Verdict != "fail") || pass != (v.Grade >= 0.5) || v.Grade < 0 || v.Grade > 1 || v.Critique == "" {
		t.Fatalf("%+v", v)
	}
	return v
}

func TestAJudgeErrsAtItsRates(t *testing.T) {
	const n = 20_000
	for _, rates := range []live.Behaviour{
		{Sensitivity: 0.95, Specificity: 0.93},
		{Sensitivity: 0.6, Specificity: 0.99, Seed: 5},
		{Sensitivity: 1, Specificity: 0},
	} {
		m := *model("sim/judge")
		m.Behaviour = &rates
		var s settings
		s.Behaviour = rates
		right, of := map[bool]float64{}, map[bool]float64{}
		for i := range n {
			text := fmt.Sprintf("Judge text %d.", i)
			if i%3 == 0 { // the truth of the others is a hash
				text += fmt.Sprintf(" [sim quality=0.99] seen before. [sim quality=0.%02d]", i%100)
			}
			truth := isGood(text)
			if i%3 == 0 && truth != (i%100 >= 50) {
				t.Fatalf("%s: %v", text, truth)
			}
			of[truth]++
			if (s.judge(&m, text).Verdict == "pass") == truth {
				right[truth]++
			}
		}
		for truth, p := range map[bool]float64{true: rates.Sensitivity, false: rates.Specificity} {
			got, allowed := right[truth]/of[truth], 3.9*math.Sqrt(p*(1-p)/of[truth]) // which chance exceeds once in ten thousand
			if of[truth] < n/3 || math.Abs(got-p) > allowed {
				t.Errorf("%+v: right about %v in %v of %v, more than %v away", rates, truth, got, of[truth], allowed)
			}
		}
	}
}

func TestAJudgeAnswersInStrictJSONAndTheSameTextTheSameWay(t *testing.T) {
	verdicts := map[string]int{}
	for i := range 200 {
		body := chatBody(fmt.Sprintf("Judge answer %d", i), `"n":2`)
		h := askChat(t, "sim/judge", body)
		v := judgeText(t, h.text())
		verdicts[v.Verdict]++
		for _, other := range []string{*h.Choices[1].Message.Content, askChat(t, "sim/judge", strings.Replace(body, `{"role":"user"`, `{"role":"system","content":"Another rubric"},{"role":"user"`, 1)).text()} {
			if judgeText(t, other) != v {
				t.Fatalf("%s and %+v", other, v)
			}
		}
	}
	if verdicts["pass"] < 60 || verdicts["fail"] < 60 {
		t.Errorf("%v", verdicts)
	}
}

func TestAJudgesErrorsDependOnTheSeedAndTheModel(t *testing.T) {
	differ := map[string]int{}
	for i := range 400 {
		text := fmt.Sprintf("Judge answer %d", i)
		first := judgeText(t, askChat(t, "sim/judge", chatBody(text, `"sim":{"sensitivity":0.5,"specificity":0.5}`)).text())
		if judgeText(t, askChat(t, "sim/judge", chatBody(text, `"sim":{"sensitivity":0.5,"specificity":0.5,"seed":9}`)).text()).Verdict != first.Verdict {
			differ["seed"]++
		}
		if judgeText(t, askChat(t, "sim/chat", chatBody(text, `"sim":{"sensitivity":0.5,"specificity":0.5}`)).text()).Verdict != first.Verdict {
			differ["model"]++
		}
	}
	if differ["seed"] < 140 || differ["model"] < 140 {
		t.Errorf("%v of 400 differ", differ)
	}
}

func TestAnyModelJudgesIfTheSchemaAsksForIt(t *testing.T) {
	schema := `{"type":"object","properties":{"critique":{"type":"string"},"grade":{"type":"number"},"verdict":{"enum":["pass","fail"]}%s},"required":["grade","verdict","critique"],"additionalProperties":false}`
	format := `"response_format":{"type":"json_schema","json_schema":{"name":"verdict","strict":true,"schema":` + schema + `}}`
	for i := range 100 {
		text := fmt.Sprintf(`Is this good? "Simulated answer %d [sim quality=0.%02d]" Answer in JSON.`, i, i)
		v := judgeText(t, askChat(t, "sim/chat", chatBody(text, fmt.Sprintf(format, ""))).text())
		if (v.Verdict == "pass") != (i >= 50) { // a model that is no judge does not err
			t.Errorf("%s: %+v", text, v)
		}
		if strict := judgeText(t, askChat(t, "sim/judge", chatBody(text, fmt.Sprintf(format, ""))).text()); strict != judgeText(t, askChat(t, "sim/judge", chatBody(text, "")).text()) {
			t.Errorf("with a schema %+v", strict)
		}
	}
	wider := parse[map[string]any](t, askChat(t, "sim/chat", chatBody("x [sim quality=0.9]", fmt.Sprintf(format, `,"more":{"type":"object","properties":{"verdict":{"type":"null"}}}`))).text())
	if more, ok := wider["more"].(map[string]any); wider["verdict"] != "pass" || !ok || more["verdict"] != nil {
		t.Errorf("%v", wider)
	}
	other := askChat(t, "sim/judge", chatWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"winner":{"enum":["A","B"]}},"required":["winner"]}}}`)).text()
	if other != `{"winner":"A"}` && other != `{"winner":"B"}` {
		t.Error(other)
	}
}

func TestTheLastMarkerDecidesWhetherATextIsGood(t *testing.T) {
	for text, want := range map[string]bool{
		"[sim quality=0.83]":                                     true,
		"[sim quality=0.50]":                                     true,
		"[sim quality=0.49]":                                     false,
		"[sim quality=1] [sim quality=0]":                        false,
		"[sim quality=0] [sim quality=1] and more":               true,
		"[sim quality=0.9] [sim quality=":                        true,
		"[sim quality=0.1] [sim quality=high] [sim quality=7.0]": false,
		"[sim quality=0.9] [sim quality=NaN]":                    true,
	} {
		if isGood(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

func TestAnAnswerAboutAMarkerDoesNotRepeatIt(t *testing.T) {
	h := askChat(t, "sim/chat", chatBody("[sim quality=0.00] [sim quality=1.00]", `"max_tokens":40`))
	if strings.Count(h.text(), markerStart) != 0 {
		t.Errorf("%q", h.text())
	}
}
