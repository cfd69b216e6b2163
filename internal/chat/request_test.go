package chat_test

import (
	"errors"
	"testing"

	"sovereign/internal/chat"
	"sovereign/internal/fault"
)

func TestWhatNobodyKnowsIsRefusedByItsName(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"m","messages":[],"wish":1}`:                                                       "wish",
		`{"model":"m","messages":[{"role":"user","content":"x","mood":1}]}`:                          "messages[0].mood",
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","bold":1}]}]}`: "messages[0].content[0].bold",
		`{"model":"m","messages":[{"role":"user","content":5}]}`:                                     "messages[0].content",
		`{"model":"m","messages":[],"temperature":"hot"}`:                                            "temperature",
		`{"model":"m","messages":[],"tools":[{"type":"function","function":{"nom":1}}]}`:             "tools[0].function.nom",
	} {
		_, err := chat.Decode([]byte(body))
		var f *fault.Fault
		if !errors.As(err, &f) || f.Field != want || f.Status != 400 {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

func TestOnlyWhatAWireCanSayIsLetThrough(t *testing.T) {
	can := map[string]bool{"model": true, "messages": true}
	for body, want := range map[string]string{
		`{"model":"m","messages":[]}`:                            "",
		`{"model":"m","logit_bias":null,"n":1,"logprobs":false}`: "",
		`{"model":"m","response_format":{ "type" : "text" }}`:    "",
		`{"model":"m","logit_bias":{"5":1}}`:                     "logit_bias",
		`{"model":"m","n":2}`:                                    "n",
		`{"model":"m","presence_penalty":0,"seed":0}`:            "seed",
	} {
		err := chat.Only([]byte(body), can, "Messages API")
		var f *fault.Fault
		if errors.As(err, &f); (err == nil) != (want == "") || err != nil && (f.Field != want || f.Kind != fault.UnsupportedParameter) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}
