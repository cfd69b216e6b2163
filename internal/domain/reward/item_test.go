package reward

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/grade/judge"
)

func value(s string) jsontext.Value { return jsontext.Value(s) }

func ptr[T any](v T) *T { return &v }

func TestARefusalNamesTheItem(t *testing.T) {
	good := ScoreItem{ID: "a", Prompt: ptr("q"), Completion: value(`"r"`)}
	with := func(change func(*ScoreItem)) ScoreRequest {
		bad := good
		change(&bad)
		return ScoreRequest{Step: "1", Items: []ScoreItem{good, bad}}
	}
	for field, q := range map[string]ScoreRequest{
		"step":                 {Items: []ScoreItem{good}},
		"items":                {Step: "1"},
		"items[1].id":          with(func(i *ScoreItem) { i.ID = "" }),
		"items[1].prompt":      with(func(i *ScoreItem) { i.Messages = []jsontext.Value{value(`{"role":"user"}`)} }),
		"items[1].messages":    with(func(i *ScoreItem) { i.Prompt, i.Messages = nil, []jsontext.Value{} }),
		"items[1].messages[0]": with(func(i *ScoreItem) { i.Prompt, i.Messages = nil, []jsontext.Value{value(`{"content":"x"}`)} }),
		"items[1].completion":  with(func(i *ScoreItem) { i.Completion = nil }),
		"items[1]":             with(func(i *ScoreItem) { i.Prompt = ptr(strings.Repeat("x", maxItem)) }),
	} {
		_, err := q.check(&session{})
		if f := fault.From(err); f.Status != 400 || f.Field != field {
			t.Errorf("%s: %+v", field, f)
		}
	}
	q := with(func(i *ScoreItem) { i.Completion = value(`[{"role":"assistant","content":"x"}]`) })
	if _, err := q.check(&session{}); fault.From(err).Field != "items[1].completion" {
		t.Errorf("a trajectory in a session that is not agentic: %v", err)
	}
	if _, err := q.check(&session{Agentic: true}); err != nil {
		t.Errorf("a trajectory: %v", err)
	}
}

func TestContentIsWhatWasSaidAndNotHowItWasWritten(t *testing.T) {
	made := func(s ScoreItem) item {
		i, err := s.check("items[0].", true)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	plain := made(ScoreItem{ID: "a", Prompt: ptr("qA"), Completion: value(`"r"`)})
	for name, c := range map[string]struct {
		item ScoreItem
		same bool
	}{
		"escaped":          {ScoreItem{ID: "b", Prompt: ptr("qA"), Completion: value(`"\u0072"`)}, true},
		"other completion": {ScoreItem{ID: "a", Prompt: ptr("qA"), Completion: value(`"s"`)}, false},
		"other prompt":     {ScoreItem{ID: "a", Prompt: ptr("q"), Completion: value(`"Ar"`)}, false},
		"a label":          {ScoreItem{ID: "a", Prompt: ptr("qA"), Completion: value(`"r"`), Label: "x"}, false},
		"messages":         {ScoreItem{ID: "a", Messages: []jsontext.Value{value(`{"role":"user","content":"qA"}`)}, Completion: value(`"r"`)}, false},
	} {
		if got := made(c.item); (got.content == plain.content) != c.same {
			t.Errorf("%s: the same content %v", name, got.content == plain.content)
		}
	}
}

// Credentials are neither stored nor shown to judges.
func TestItemsHaveNoCredentials(t *testing.T) {
	const key = "sk-ant-api03-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqrstuvw-abcdefAA"
	got, err := (&ScoreItem{ID: "a", Prompt: ptr("my key is " + key), Completion: value(`"` + key + `"`), Label: key}).check("", false)
	if all := string(got.Prompt) + string(got.Completion) + got.Label; err != nil || strings.Contains(all, key) {
		t.Errorf("%s, %v", all, err)
	}
}

// A trajectory is judged whole: every assistant message stands under RESPONSE, every tool result is shown.
func TestATrajectoryIsJudgedWhole(t *testing.T) {
	s, err := subject(value(`"Book a flight."`), value(`[
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"search","arguments":"{\"to\":\"Rome\"}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"Flight AZ1"},
		{"role":"assistant","content":"Shall I book AZ1?"},
		{"role":"user","content":"Yes."},
		{"role":"assistant","content":"Booked."},
		{"role":"tool","tool_call_id":"c2","content":"late"}]`))
	if err != nil || len(s.Steps) != 4 {
		t.Fatalf("%+v, %v", s, err)
	}
	told := judge.Instructions{Rubric: "It is booked.", Scale: judge.Binary, Threshold: 0.5}
	body, err := told.Ask("m", s, judge.Structured)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, part := range []string{
		"Book a flight.", "RESPONSE", "assistant calls", "Rome", "tool in reply to", "Flight AZ1", "RESPONSE", "Shall I book AZ1?", "Yes.",
		"RESPONSE", "Booked.", "late", "(there is none)",
	} {
		next := strings.Index(string(body[at:]), part)
		if next < 0 {
			t.Fatalf("%q is not shown in its place:\n%s", part, body)
		}
		at += next
	}
	if s, err := subject(value(`"q"`), value(`{}`)); err == nil {
		t.Errorf("no list: %+v", s)
	}
}
