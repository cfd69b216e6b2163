package responses

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// rest are the members of an object that its type does not name.
type rest struct {
	Others map[string]jsontext.Value `json:",embed"`
}

func (r *rest) others() map[string]jsontext.Value { return r.Others }

// neutral values ask for nothing that would not happen anyway.
var neutral = map[string][]string{
	"background": {"false"}, "store": {"false"}, "truncation": {`"disabled"`, `"auto"`}, "service_tier": {`"auto"`, `"default"`},
	"top_logprobs": {"0"}, "context_management": {"[]"}, "include_obfuscation": {"false"}, "context": {`"auto"`},
	"annotations": {"[]"}, "logprobs": {"[]"}, "async": {"false"}, "defer_loading": {"false"}, "detail": {`"auto"`},
}

// known are the other members that OpenAI's API has, at any place, and chat has not.
var known = []string{
	"moderation", "access_programs", "prompt_cache_options", "prompt_cache_breakpoint", "mode", "phase", "namespace", "caller",
}

// reasons say why a member, or a type of item, is refused.
var reasons = map[string]string{
	"previous_response_id": "cannot be used with this model: nothing is stored; send the conversation in input",
	"conversation":         "cannot be used with this model: nothing is stored; send the conversation in input",
	"store":                "must be false for this model: nothing is stored",
	"background":           "must be false for this model: nothing is stored to be fetched later",
	"prompt":               "cannot be used with this model: no templates are stored",
	"max_tool_calls":       "has no equivalent: this model has no built-in tools",
	"file_id":              "cannot be used with this model: no files are stored; send the file itself",
	"file_url":             "cannot be used with this model; send the file itself",
	"item_reference":       "cannot be item_reference: nothing is stored: send the items themselves, and store: false",
}

// renamed are members of chat that have another name here.
var renamed = map[string]string{
	"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "messages": "input", "response_format": "text.format",
	"reasoning_effort": "reasoning.effort", "verbosity": "text.verbosity",
}

// read decodes an object that stands at a place of the body. What is null, or asks for what would happen anyway, is fine;
// every other member that its type does not name is refused by its name.
func read(at string, value jsontext.Value, into interface {
	others() map[string]jsontext.Value
},
) error {
	if err := json.Unmarshal(value, into); err != nil {
		return within(at, chat.Refuse(err))
	}
	others := into.others()
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if value := others[name]; value.Kind() != 'n' && !asksNothing(name, value) {
			return chat.Unsupported(join(at, name), why(name))
		}
	}
	return nil
}

func why(name string) string {
	_, heard := neutral[name]
	switch {
	case reasons[name] != "":
		return reasons[name]
	case renamed[name] != "":
		return "is not of the Responses API; " + renamed[name] + " is"
	case heard || slices.Contains(known, name):
		return "has no equivalent in chat completions"
	default:
		return "is not known"
	}
}

func asksNothing(name string, value jsontext.Value) bool {
	compact := value.Clone()
	return compact.Compact() == nil && slices.Contains(neutral[name], string(compact))
}

// within says where in the body the object stands that an error is about.
func within(at string, err error) error {
	var f *fault.Fault
	if at == "" || !errors.As(err, &f) || f.Field == "" {
		return err
	}
	named := *f
	if named.Field = join(at, f.Field); f.Field == "the body" {
		named.Field = at
	}
	named.Message = named.Field + strings.TrimPrefix(f.Message, f.Field)
	return &named
}

func join(at, field string) string {
	if at == "" || strings.HasPrefix(field, "[") {
		return at + field
	}
	return at + "." + field
}

// said is a text or a list.
type said struct {
	plain *string
	list  []jsontext.Value
}

// UnmarshalJSONFrom reads either, or null.
func (s *said) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*s = said{}
	if d.PeekKind() == '"' {
		return json.UnmarshalDecode(d, &s.plain)
	}
	return json.UnmarshalDecode(d, &s.list)
}

// typeOf is what an object's type member says.
func typeOf(at string, value jsontext.Value) (string, error) {
	var object struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(value, &object); err != nil {
		return "", within(at, chat.Refuse(err))
	}
	return object.Type, nil
}
