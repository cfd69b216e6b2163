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

// unknownMembers collects the members of an object that its type does not name.
type unknownMembers struct {
	Others map[string]jsontext.Value `json:",embed"`
}

func (r *unknownMembers) others() map[string]jsontext.Value { return r.Others }

// neutralValues are values that equal the default.
var neutralValues = map[string][]string{
	"background": {"false"}, "store": {"false"}, "truncation": {`"disabled"`, `"auto"`},
	"service_tier": {`"auto"`, `"default"`},
	"top_logprobs": {"0"}, "context_management": {"[]"}, "include_obfuscation": {"false"}, "context": {`"auto"`},
	"annotations": {"[]"}, "logprobs": {"[]"}, "async": {"false"}, "defer_loading": {"false"}, "detail": {`"auto"`},
}

// knownMembers are further members of OpenAI's API, of any object, that chat does not have.
var knownMembers = []string{
	"moderation", "access_programs", "prompt_cache_options", "prompt_cache_breakpoint", "mode", "phase", "namespace",
	"caller",
}

// refusalReasons are the messages for refused members and item types.
var refusalReasons = map[string]string{
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

// renamedMembers are members of chat completions that have another name in the Responses API.
var renamedMembers = map[string]string{
	"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "messages": "input",
	"response_format":  "text.format",
	"reasoning_effort": "reasoning.effort", "verbosity": "text.verbosity",
}

// decode reads an object at a path of the body. Members that its type does not name are refused, unless they are null
// or neutral.
func decode(at string, value jsontext.Value, into interface {
	others() map[string]jsontext.Value
},
) error {
	if err := json.Unmarshal(value, into); err != nil {
		return prefixField(at, chat.DecodeFault(err))
	}
	others := into.others()
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if value := others[name]; value.Kind() != 'n' && !isNeutral(name, value) {
			return chat.Unsupported(joinPath(at, name), refusalReason(name))
		}
	}
	return nil
}

func refusalReason(name string) string {
	_, heard := neutralValues[name]
	switch {
	case refusalReasons[name] != "":
		return refusalReasons[name]
	case renamedMembers[name] != "":
		return "is not of the Responses API; " + renamedMembers[name] + " is"
	case heard || slices.Contains(knownMembers, name):
		return "has no equivalent in chat completions"
	default:
		return "is not known"
	}
}

func isNeutral(name string, value jsontext.Value) bool {
	compact := value.Clone()
	return compact.Compact() == nil && slices.Contains(neutralValues[name], string(compact))
}

// prefixField prepends the path of an object to the field of a fault.
func prefixField(at string, err error) error {
	var f *fault.Fault
	if at == "" || !errors.As(err, &f) || f.Field == "" {
		return err
	}
	named := *f
	if named.Field = joinPath(at, f.Field); f.Field == "the body" {
		named.Field = at
	}
	named.Message = named.Field + strings.TrimPrefix(f.Message, f.Field)
	return &named
}

func joinPath(at, field string) string {
	if at == "" || strings.HasPrefix(field, "[") {
		return at + field
	}
	return at + "." + field
}

// textOrList is a string or an array.
type textOrList struct {
	text *string
	list []jsontext.Value
}

// UnmarshalJSONFrom reads a string, an array or null.
func (s *textOrList) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*s = textOrList{}
	if d.PeekKind() == '"' {
		return json.UnmarshalDecode(d, &s.text)
	}
	return json.UnmarshalDecode(d, &s.list)
}

// typeOf returns the type member of an object.
func typeOf(at string, value jsontext.Value) (string, error) {
	var object struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(value, &object); err != nil {
		return "", prefixField(at, chat.DecodeFault(err))
	}
	return object.Type, nil
}
