package anthropic_test

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/respjson"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/wire/anthropic"
	"sovereign/internal/wire/upstream"
)

// These hold our translation against the types of Anthropic's own SDK: what it does not know does not come back from
// it.

var dialect = anthropic.Dialect{Now: func() time.Time { return time.Unix(1700000000, 0) }}

func request(body string, stream bool) *upstream.Request {
	half := len(body) / 2
	return &upstream.Request{
		Model: &live.Model{Upstream: "claude-opus-4-8", MaxOutput: 8000}, Path: upstream.ChatPath,
		Body: [][]byte{[]byte(body[:half]), []byte(body[half:])}, Stream: stream,
	}
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// translate returns the translated request as decoded by the SDK, and its bytes.
func translate(t failer, r *upstream.Request) (sdk.MessageNewParams, []byte) {
	t.Helper()
	exchange, err := dialect.NewExchange(r)
	if err != nil {
		t.Fatal(err)
	}
	path, body := exchange.Request()
	if path != "/messages" {
		t.Fatalf("it goes to %s", path)
	}
	params, err := decodeStrict(body)
	if err != nil {
		t.Fatal(err)
	}
	return params, body
}

// decodeStrict decodes a body with the SDK, which must encode to the same. The SDK's type has no member stream.
func decodeStrict(body []byte) (params sdk.MessageNewParams, err error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil {
		return params, err
	}
	delete(members, "stream")
	ours, err := json.Marshal(members)
	if err != nil {
		return params, err
	}
	if err := params.UnmarshalJSON(ours); err != nil {
		return params, err
	}
	theirs, err := stdjson.Marshal(params)
	if err != nil {
		return params, err
	}
	if diff := cmp.Diff(canonical(ours), canonical(theirs)); diff != "" {
		return params, fmt.Errorf("the SDK reads another request: %s", diff)
	}
	return params, nil
}

func canonical(text []byte) string {
	v := jsontext.Value(text).Clone()
	if err := v.Canonicalize(); err != nil {
		return err.Error()
	}
	return string(v)
}

func TestTheOracleFindsUnknownRequestMembers(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","max_tokens":1,"messages":[],"mood":1}`,
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"x","bold":true}]}]}`,
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"sound","data":"x"}]}]}`,
		`{"model":"m","max_tokens":1,"messages":[],"thinking":{"type":"adaptive","depth":3}}`,
		`{"model":"m","max_tokens":1,"messages":[],"tools":[{"name":"f","input_schema":{"type":"object"},"pure":true}]}`,
	} {
		if _, err := decodeStrict([]byte(body)); err == nil {
			t.Errorf("%s is not known, and went through", body)
		}
	}
}

// unknownMembers returns the members that the SDK does not know, at any depth.
func unknownMembers(v reflect.Value) (all []string) {
	if !v.IsValid() {
		return nil
	}
	if v.CanInterface() {
		if as := v.MethodByName("AsAny"); as.IsValid() {
			variant := as.Call(nil)[0]
			if variant.IsNil() {
				return []string{fmt.Sprintf("%s: %v", v.Type(), v.MethodByName("RawJSON").Call(nil)[0])}
			}
			return unknownMembers(variant.Elem())
		}
	}
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			all = append(all, unknownMembers(v.Index(i))...)
		}
		return all
	}
	if v.Kind() != reflect.Struct || !v.FieldByName("JSON").IsValid() {
		return nil
	}
	meta := v.FieldByName("JSON")
	if extra := meta.FieldByName("ExtraFields"); extra.IsValid() {
		for _, key := range extra.MapKeys() {
			all = append(all, v.Type().Name()+"."+key.String())
		}
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Name != "JSON" && f.IsExported() && isPresent(meta, f.Name) {
			all = append(all, unknownMembers(v.Field(i))...)
		}
	}
	return all
}

// isPresent reports whether a member was in the JSON.
func isPresent(meta reflect.Value, name string) bool {
	field := meta.FieldByName(name)
	return field.IsValid() && field.Interface().(respjson.Field).Valid()
}

// message decodes an answer that the SDK must know completely.
func message(t failer, text string) *sdk.Message {
	t.Helper()
	m := &sdk.Message{}
	if err := m.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if all := unknownMembers(reflect.ValueOf(m).Elem()); len(all) > 0 {
		t.Fatalf("the SDK does not know %v", all)
	}
	return m
}

func TestTheOracleFindsUnknownAnswerMembers(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"message","mood":1}`:                                        "Message.mood",
		`{"type":"message","content":[{"type":"text","text":"x","bold":1}]}`: "TextBlock.bold",
		`{"type":"message","content":[{"type":"song"}]}`:                     "song",
		`{"type":"message","usage":{"input_tokens":1,"tears":2}}`:            "Usage.tears",
	} {
		m := &sdk.Message{}
		if err := m.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(unknownMembers(reflect.ValueOf(m).Elem()), " "); !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %s", text, all, want)
		}
	}
}

// refusedField returns the field that a request is refused for.
func refusedField(t failer, r *upstream.Request) (field string, kind fault.Kind) {
	t.Helper()
	_, err := dialect.NewExchange(r)
	var f *fault.Fault
	if !errors.As(err, &f) || f.Status != 400 {
		t.Fatalf("%s: it is not refused: %v", r.Body, err)
	}
	return f.Field, f.Kind
}
