package main

import (
	"encoding/json"
	"maps"
	"strings"
)

// An anthropicAnswer is a completion in Anthropic's words.
type anthropicAnswer struct {
	*completion
	plan    *plan
	usage   *usage // nil when none is told
	message map[string]any
}

// blocks are the whole answer's.
func (m *anthropicAnswer) blocks() (out []any) {
	var t trail
	think := func(thought string) {
		if thought == "" {
			return
		}
		out = append(out, map[string]any{"type": "thinking", "thinking": thought, "signature": t.sign(thought)})
		t.mark("thinking")
		if m.plan.sealed {
			out = append(out, map[string]any{"type": "redacted_thinking", "data": sealedThought()})
			t.mark("redacted_thinking")
		}
	}
	think(m.Reasoning)
	if m.Content != nil {
		out = append(out, map[string]any{"type": "text", "text": *m.Content, "citations": nil})
		t.text(*m.Content)
	}
	for _, c := range m.Calls {
		think(m.again(c.Function.Name))
		t.mark(c.ID)
		out = append(out, map[string]any{
			"type": "tool_use", "id": c.ID, "name": c.Function.Name, "input": json.RawMessage(c.Function.Arguments),
		})
	}
	return out
}

// again is what the model thinks before a call, if it does.
func (m *anthropicAnswer) again(name string) string {
	if m.Reasoning == "" || !strings.HasPrefix(m.plan.name, interleaved) {
		return ""
	}
	return "now " + name
}

// stopReasons are Anthropic's words for ours; the plan's are said as they are.
var stopReasons = map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}

func (m *anthropicAnswer) stopped() map[string]any {
	reason, ok := stopReasons[m.Finish]
	if !ok {
		reason = m.Finish
	}
	out := map[string]any{"stop_reason": reason, "stop_sequence": nil}
	switch reason {
	case "stop_sequence":
		out["stop_sequence"] = "END"
	case "refusal":
		out["stop_details"] = map[string]any{
			"type": "refusal", "category": "general_harms", "explanation": "the provider does not answer this",
		}
	}
	return out
}

// figures are the usage in Anthropic's words: what was read from the cache or written to it is no part of input_tokens.
func (m *anthropicAnswer) figures(output int) map[string]any {
	written := value(m.usage.PromptDetails.Written)
	return map[string]any{
		"input_tokens":                max(0, m.usage.Prompt-m.usage.PromptDetails.Cached-written),
		"cache_read_input_tokens":     m.usage.PromptDetails.Cached,
		"cache_creation_input_tokens": written,
		"cache_creation": map[string]any{
			"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0,
		},
		"output_tokens":         output,
		"output_tokens_details": map[string]any{"thinking_tokens": m.usage.CompletionDetails.Reasoning},
		"service_tier":          "standard",
	}
}

// events are the answer in steps. The input's figures come with the start and the output's at the end, unless the plan
// wants all of them at the end alone, or with each.
func (m *anthropicAnswer) events() []event {
	s := &anthropicStream{index: -1}
	start, end := maps.Clone(m.message), map[string]any{"delta": m.stopped()}
	if m.usage != nil && m.plan.usage != "last" {
		figures := m.figures(min(1, m.usage.Completion))
		delete(figures, "output_tokens_details")
		start["usage"] = figures
	}
	if m.usage != nil {
		figures := m.figures(m.usage.Completion)
		for _, name := range []string{"cache_creation", "service_tier"} { // which only the start has
			delete(figures, name)
		}
		if m.plan.usage != "last" && m.plan.usage != "each" {
			figures = map[string]any{
				"output_tokens": figures["output_tokens"], "output_tokens_details": figures["output_tokens_details"],
			}
		}
		end["usage"] = figures
	}
	s.add("message_start", map[string]any{"message": start})
	for _, d := range m.deltas(m.plan.chunks) {
		m.step(s, d)
	}
	m.sealing(s)
	s.close()
	s.add("message_delta", end)
	s.out[len(s.out)-1].last = true
	s.add("message_stop", map[string]any{})
	s.out[len(s.out)-1].last = true
	return s.out
}

func (m *anthropicAnswer) step(s *anthropicStream, d delta) {
	switch {
	case d.Reasoning != nil:
		s.open("thinking", map[string]any{"type": "thinking", "thinking": "", "signature": ""})
		s.think(*d.Reasoning)
	case d.Content != nil:
		m.sealing(s)
		s.open("text", map[string]any{"type": "text", "text": ""})
		s.delta("text_delta", "text", *d.Content)
		s.text(*d.Content)
	case d.Calls[0].ID != "":
		m.sealing(s)
		if thought := m.again(d.Calls[0].Function.Name); thought != "" {
			s.open("thinking", map[string]any{"type": "thinking", "thinking": "", "signature": ""})
			s.think(thought)
			s.out[len(s.out)-1].chunk = false
			m.sealing(s)
		}
		s.mark(d.Calls[0].ID)
		s.open("tool_use "+d.Calls[0].ID, map[string]any{
			"type": "tool_use", "id": d.Calls[0].ID, "name": d.Calls[0].Function.Name, "input": map[string]any{},
		})
		s.delta("input_json_delta", "partial_json", "")
	default:
		s.delta("input_json_delta", "partial_json", d.Calls[0].Function.Arguments)
	}
}

// sealing ends the thinking, with its signature and the sealed thought.
func (m *anthropicAnswer) sealing(s *anthropicStream) {
	if s.block != "thinking" {
		return
	}
	s.delta("signature_delta", "signature", s.sign(s.thought))
	s.out[len(s.out)-1].chunk = false
	s.thought = ""
	s.mark("thinking")
	if m.plan.sealed {
		s.mark("redacted_thinking")
		s.open("redacted_thinking", map[string]any{"type": "redacted_thinking", "data": sealedThought()})
	}
}

// An anthropicStream collects events; one block is open at a time.
type anthropicStream struct {
	trail
	out     []event
	block   string // the open one, or nothing
	index   int    // its place
	thought string // that is not yet signed
}

func (s *anthropicStream) add(kind string, value map[string]any) {
	value["type"] = kind
	s.out = append(s.out, event{name: kind, value: value})
}

// open begins a block, unless it is open already. The provider sends a ping after the first.
func (s *anthropicStream) open(name string, block map[string]any) {
	if s.block == name {
		return
	}
	s.close()
	s.block = name
	s.index++
	s.add("content_block_start", map[string]any{"index": s.index, "content_block": block})
	if s.index == 0 {
		s.add("ping", map[string]any{})
	}
}

func (s *anthropicStream) delta(kind, name, text string) {
	s.add("content_block_delta", map[string]any{"index": s.index, "delta": map[string]any{"type": kind, name: text}})
	s.out[len(s.out)-1].chunk = true
}

func (s *anthropicStream) think(words string) {
	s.delta("thinking_delta", "thinking", words)
	s.thought += words
}

func (s *anthropicStream) close() {
	if s.block != "" {
		s.add("content_block_stop", map[string]any{"index": s.index})
	}
	s.block = ""
}
