package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
)

// anthropicWire is that of the Messages API.
var anthropicWire = wire{
	key: func(h http.Header) string { return h.Get("X-Api-Key") }, unknown: http.StatusUnauthorized,
	refusal: func(a *answer, status int, _, _, message string) any {
		return anthropicError(anthropicKinds[status], message, a.w.Header().Get("X-Request-Id"))
	},
	broken: func(*answer, string) string {
		return event{name: "error", value: anthropicError("overloaded_error", "Overloaded", "")}.lines()
	},
	ping: event{name: "ping", value: map[string]any{"type": "ping"}}.lines(),
}

// anthropicKinds are the types of errors by status. Every other status is an api_error.
var anthropicKinds = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusUnprocessableEntity: "invalid_request_error",
	http.StatusUnauthorized: "authentication_error", http.StatusPaymentRequired: "billing_error",
	http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusGatewayTimeout: "timeout_error", overloaded: "overloaded_error",
}

func anthropicError(kind, message, id string) any {
	if kind == "" {
		kind = "api_error"
	}
	out := map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}}
	if id != "" {
		out["request_id"] = id
	}
	return out
}

// signed signs what this provider said, so that it recognizes it when it comes back.
func signed(parts ...string) string {
	sum := sha256.Sum256([]byte(secretKey + "\x00" + strings.Join(parts, "\x00")))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// A trail is what an answer has said so far. A thought is signed together with it, and so is valid only in its place.
type trail struct{ said strings.Builder }

func (t *trail) text(words string)          { t.said.WriteString(words) }
func (t *trail) mark(kind string)           { t.said.WriteString("\x00" + kind + "\x00") }
func (t *trail) sign(thought string) string { return signed("thinking", thought, t.said.String()) }

// interleaved is the prefix of models that think again before every call.
const interleaved = "interleaved-"

// sealedThought is a thought that only the provider can read.
func sealedThought() string { return signed("sealed") }

// readMessages reads a request with Anthropic's own types, and checks it by the rules of the API.
func readMessages(a *answer) error {
	if a.r.Header.Get("Anthropic-Version") == "" {
		return bad("anthropic-version", "the header is required")
	}
	body := []byte(a.record.Body)
	var top struct{ Stream bool }
	if err := json.Unmarshal(body, &top); err != nil {
		return err
	}
	var params anthropic.MessageNewParams
	if err := understood("", body, &params, "stream"); err != nil {
		return err
	}
	turns, err := anthropicRules(&params)
	if err != nil {
		return err
	}
	limit := int(params.MaxTokens)
	a.ask = ask{Model: params.Model, Stream: top.Stream, MaxTokens: &limit}
	for _, block := range params.System {
		a.ask.Messages = append(a.ask.Messages, message{"system", block.Text})
	}
	for _, t := range turns {
		a.ask.Messages = append(a.ask.Messages, t.message())
	}
	for _, t := range params.Tools {
		if t.OfTool != nil {
			a.ask.Tools = append(a.ask.Tools, anthropicTool(t.OfTool))
		}
	}
	switch choice := params.ToolChoice; {
	case choice.OfNone != nil:
		a.ask.ToolChoice = "none"
	case choice.OfTool != nil:
		a.ask.ToolChoice = map[string]any{"function": map[string]any{"name": choice.OfTool.Name}}
	}
	if alone := params.ToolChoice.GetDisableParallelToolUse(); alone != nil && *alone {
		a.ask.Parallel = new(bool)
	}
	if schema := params.OutputConfig.Format.Schema; schema != nil {
		a.ask.ResponseFormat = &format{Type: "json_schema"}
		a.ask.ResponseFormat.JSONSchema.Schema = schema
	}
	a.ask.thinks = params.Thinking.OfEnabled != nil || params.Thinking.OfAdaptive != nil
	return nil
}

func anthropicTool(t *anthropic.ToolParam) (out tool) {
	schema := map[string]any{}
	text, err := json.Marshal(t.InputSchema)
	if err != nil || json.Unmarshal(text, &schema) != nil {
		panic("a schema that was read cannot be written")
	}
	out.Function.Name, out.Function.Parameters = t.Name, schema
	return out
}

// messages answers as the Messages API does, whole or in events.
func (p *provider) messages(a *answer) {
	c := complete(&a.plan, &a.ask)
	if !a.ask.thinks {
		c.Reasoning = ""
	}
	for i := range c.Calls {
		c.Calls[i].ID = strings.ReplaceAll(p.id("toolu"), "-", "_")
	}
	m := &anthropicAnswer{
		completion: c, plan: &a.plan, usage: a.plan.report(a.ask.input(), c.tokens(), words(c.Reasoning)),
	}
	m.message = map[string]any{
		"id": p.id("msg"), "type": "message", "role": "assistant", "model": a.plan.name,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil,
	}
	if a.ask.Stream {
		a.play(m.events())
		return
	}
	m.message["content"] = m.blocks()
	maps.Copy(m.message, m.stopped())
	if m.usage != nil {
		m.message["usage"] = m.figures(m.usage.Completion)
	}
	a.whole(m.message)
}
