package responses_test

import (
	stdjson "encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"
	sdk "github.com/openai/openai-go/v3/responses"
)

// OpenAI's own types are the oracle: what we write must read with them, with nothing left over and nothing missing.

// extra are members that OpenAI's types lack: its service sends the first, older clients read the second.
var extra = []string{"store", "name"}

func fits(t *testing.T, at string, v reflect.Value) {
	t.Helper()
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			fits(t, at+"[]", v.Index(i))
		}
	case reflect.Struct:
		if variant := v.MethodByName("AsAny"); variant.IsValid() {
			got := variant.Call(nil)[0]
			if got.IsNil() {
				t.Errorf("%s is of no known type: %+v", at, v.Interface())
				return
			}
			fits(t, at, got.Elem())
			return
		}
		fitsStruct(t, at, v)
	default: // it holds nothing
	}
}

func fitsStruct(t *testing.T, at string, v reflect.Value) {
	t.Helper()
	meta := v.FieldByName("JSON")
	if !meta.IsValid() {
		return
	}
	if left := meta.FieldByName("ExtraFields"); left.IsValid() {
		for _, name := range left.MapKeys() {
			if !slices.Contains(extra, name.String()) {
				t.Errorf("%s has a member %s", at, name)
			}
		}
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		info := meta.FieldByName(f.Name)
		if f.Name == "JSON" || !info.IsValid() {
			continue
		}
		told := info.Interface().(respjson.Field)
		_, constant := f.Tag.Lookup("default")
		switch raw := told.Raw(); {
		case raw == respjson.Omitted && (constant || f.Tag.Get("api") == "required"):
			t.Errorf("%s lacks %s", at, f.Tag.Get("json"))
		case raw != respjson.Omitted && raw != respjson.Null && !told.Valid():
			t.Errorf("%s.%s is %s", at, f.Name, raw)
		case told.Valid():
			fits(t, at+"."+f.Name, v.Field(i))
		}
	}
}

func TestAnswersReadWithOpenAIsTypes(t *testing.T) {
	for name, s := range recordings {
		for _, body := range []string{fullRequest, `{"model":"m","input":"Hi"}`} {
			if s.whole == "" {
				continue
			}
			text, err := translateAnswer(body, s.whole)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var r sdk.Response
			if err := stdjson.Unmarshal([]byte(text), &r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			fits(t, name, reflect.ValueOf(r))
		}
	}
}

func TestEventsReadWithOpenAIsTypes(t *testing.T) {
	seen := map[string]bool{}
	for name, s := range recordings {
		text, err := stream(fullRequest, chunks(s.chunks...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, e := range receivedEvents(t, text) {
			var u sdk.ResponseStreamEventUnion
			if err := stdjson.Unmarshal(e.data, &u); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			fits(t, name+" "+e.name, reflect.ValueOf(u))
			seen[e.name] = true
		}
	}
	if len(seen) != 21 {
		t.Errorf("%d kinds of events were seen", len(seen))
	}
}

func TestOutputItemsReadWithOpenAIsTypes(t *testing.T) {
	var r sdk.Response
	text, err := translateAnswer(fullRequest, recordings["parallel tools, interleaved"].whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := stdjson.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	call := r.Output[1].AsFunctionCall()
	if r.OutputText() != "On it." || call.CallID != "call_a" || call.Name != "weather" || call.Arguments != `{"city":"Bern"}` {
		t.Errorf("%+v", r)
	}
	u := r.Usage
	if u.InputTokens != 20 || u.OutputTokens != 7 || u.TotalTokens != 27 || u.InputTokensDetails.CachedTokens != 4 ||
		u.InputTokensDetails.CacheWriteTokens != 3 || u.OutputTokensDetails.ReasoningTokens != 2 {
		t.Errorf("%+v", u)
	}
	if r.Metadata["a"] != "1" || r.Temperature != 0.5 || r.TopP != 0.9 || r.MaxOutputTokens != 100 || r.ParallelToolCalls || r.SafetyIdentifier != "s" ||
		r.Instructions.OfString != "Be brief." || len(r.Tools) != 2 || r.Text.Verbosity != "low" || r.Reasoning.Effort != "low" {
		t.Errorf("%+v", r)
	}
}

func TestTheTestRequestsMatchOpenAIsTypes(t *testing.T) {
	bodies := []string{fullRequest}
	for _, m := range mappings {
		bodies = append(bodies, `{"model":"m",`+m.body+`}`)
	}
	for _, body := range bodies {
		wire := string(translate(t, body))
		if strings.Contains(wire, "reasoning_") && !strings.Contains(wire, "reasoning_effort") || strings.Contains(wire, "extra_content") {
			continue // not OpenAI's own
		}
		var p openai.ChatCompletionNewParams
		var choice struct {
			Named *openai.ChatCompletionNamedToolChoiceParam `json:"tool_choice"`
		}
		if err := stdjson.Unmarshal([]byte(wire), &p); err != nil {
			t.Errorf("%s: %v", wire, err)
			continue
		}
		if strings.Contains(wire, `"tool_choice":{`) { // which the union reads as another of its variants
			if err := stdjson.Unmarshal([]byte(wire), &choice); err != nil {
				t.Errorf("%s: %v", wire, err)
			}
			p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfFunctionToolChoice: choice.Named}
		}
		encoded, err := stdjson.Marshal(p)
		if err != nil {
			t.Errorf("%s: %v", wire, err)
			continue
		}
		if d := cmp.Diff(canonical(t, []byte(wire)), canonical(t, encoded)); d != "" {
			t.Errorf("%s: %s", wire, d)
		}
	}
}
