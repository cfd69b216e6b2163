package chat_test

import (
	"errors"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

func TestAnUnknownMemberIsRefusedByName(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m","messages":[],"wish":1}`:                                                       "wish",
		`{"model":"m","messages":[{"role":"user","content":"x","mood":1}]}`:                          "messages[0].mood",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","bold":1}]}]}`: "messages[0].content[0].bold",
		`{"model":"m","messages":[{"role":"user","content":5}]}`:                                     "messages[0].content",
		`{"model":"m","messages":[],"temperature":"hot"}`:                                            "temperature",
		`{"model":"m","messages":[],"tools":[{"type":"function","function":{"nom":1}}]}`:             "tools[0].function.nom",
		`{"model":"m","messages":[],"tool_choice":{"type":"auto","function":{"name":"f"}}}`:          "tool_choice",
		`{"model":"m","messages":[],"tool_choice":{"type":"function","allowed_tools":{}}}`:           "tool_choice",
	} {
		_, err := chat.Decode([]byte(body))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Field != want || f.Status != 400 {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

func TestCheckParametersRefusesWhatIsNotExpressible(t *testing.T) {
	can := map[string]bool{"model": true, "messages": true}
	for body, want := range map[string]string{
		`{"model":"m","messages":[]}`:                            "",
		`{"model":"m","logit_bias":null,"n":1,"logprobs":false}`: "",
		`{"model":"m","response_format":{ "type" : "text" }}`:    "",
		`{"model":"m","logit_bias":{"5":1}}`:                     "logit_bias",
		`{"model":"m","user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h","metadata":{"a":"b"}}`: "",
		`{"model":"m","n":2}`:                         "n",
		`{"model":"m","presence_penalty":0,"seed":0}`: "seed",
	} {
		err := chat.CheckParameters([]byte(body), can, "Messages API")
		var f *fault.Fault
		if errors.As(err, &f); (err == nil) != (want == "") || err != nil && (f.Field != want || f.Kind != fault.UnsupportedParameter) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

func TestAPartWithAMemberOfAnotherTypeIsRefused(t *testing.T) {
	for _, p := range []chat.Part{
		{Type: chat.PartText, Text: "x"},
		{Type: chat.PartText},
		{Type: chat.PartImage, ImageURL: &chat.ImageURL{}},
		{Type: chat.PartAudio, InputAudio: &chat.InputAudio{}},
		{Type: chat.PartFile, File: &chat.File{}},
		{Type: chat.PartRefusal, Refusal: "x"},
	} {
		if err := p.CheckType("p"); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		held := p.Type
		if p.Type = "other"; p.Text+p.Refusal == "" && held == chat.PartText {
			continue
		}
		var f *fault.Fault
		if err := p.CheckType("p"); !errors.As(err, &f) || f.Field != "p."+held {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestADescriptionGoesIntoTheSchema(t *testing.T) {
	for schema, want := range map[string]string{
		`{}`:                       `{"description":"d\n"}`,
		"{ \"type\" : \"object\"}": `{"description":"d\n","type" : "object"}`,
		`{"description":"e"}`:      "",
	} {
		got, err := (&chat.JSONSchema{Description: "d\n", Schema: []byte(schema)}).SchemaWithDescription()
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", schema, got, err)
		}
	}
}

func TestDeltasOfOneIndexAreOneThought(t *testing.T) {
	i, at := 0, &chat.Position{Text: 1}
	whole := chat.JoinThoughts([]chat.Thought{
		{Type: chat.ThoughtSummary, Summary: "a", Position: at, Index: &i}, {Type: chat.ThoughtSummary, ID: "r", Summary: "b", Format: "f", Model: "m", Index: &i},
	})
	if want := (chat.Thought{Type: chat.ThoughtSummary, ID: "r", Summary: "ab", Format: "f", Model: "m", Position: at, Index: &i}); len(whole) != 1 || whole[0] != want {
		t.Errorf("%+v", whole)
	}
}
