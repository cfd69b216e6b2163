package main

import (
	"maps"
	"time"
)

// respond answers as OpenAI's Responses does, whole or in events.
func (p *provider) respond(a *answer) {
	c := complete(&a.plan, &a.ask)
	r := &responsesAnswer{completion: c, plan: &a.plan}
	r.response = map[string]any{
		"id": p.id("resp"), "object": "response", "created_at": time.Now().Unix(), "model": a.plan.name,
		"status": "in_progress", "output": []any{}, "error": nil, "incomplete_details": nil, "instructions": nil,
		"metadata": map[string]any{}, "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0,
		"tool_choice": "auto", "tools": []any{}, "usage": nil, "max_output_tokens": nil, "previous_response_id": nil,
		"reasoning": map[string]any{"effort": nil, "summary": nil},
		"text":      map[string]any{"format": map[string]any{"type": "text"}}, "truncation": "disabled", "user": nil,
	}
	r.compose(p, a.ask.thinks)
	r.close(a.plan.report(a.ask.input(), c.tokens(), words(c.Reasoning)))
	if a.ask.Stream {
		a.play(r.events())
		return
	}
	a.whole(r.end)
}

// A responsesAnswer is a completion in the words of Responses.
type responsesAnswer struct {
	*completion
	plan     *plan
	response map[string]any // as it begins
	end      map[string]any // as it ends
	items    []map[string]any
	out      []event
}

// compose makes the items of the output.
func (r *responsesAnswer) compose(p *provider, sealed bool) {
	if r.Reasoning != "" {
		item := map[string]any{"id": p.id("rs"), "type": "reasoning", "summary": []any{summary(r.Reasoning)}}
		if sealed {
			item["encrypted_content"] = signed("reasoning", item["id"].(string))
		}
		r.items = append(r.items, item)
	}
	if r.Content != nil {
		r.items = append(r.items, map[string]any{
			"id": p.id("msg"), "type": "message", "role": "assistant", "status": "completed",
			"content": []any{outputText(*r.Content)},
		})
	}
	for i := range r.Calls {
		r.Calls[i].ID = p.id("call")
		f := r.Calls[i].Function
		r.items = append(r.items, map[string]any{
			"id": p.id("fc"), "type": "function_call", "status": "completed", "call_id": r.Calls[i].ID, "name": f.Name,
			"arguments": f.Arguments,
		})
	}
}

func summary(text string) any { return map[string]any{"type": "summary_text", "text": text} }

func outputText(text string) any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

// close sets the final status: completed, incomplete with a reason, or failed.
func (r *responsesAnswer) close(u *usage) {
	r.end = maps.Clone(r.response)
	r.end["status"], r.end["output"] = "completed", r.items
	switch r.Finish {
	case "stop", "tool_calls":
		r.end["completed_at"] = r.response["created_at"]
	case "failed":
		r.end["status"], r.end["error"] = "failed", map[string]any{
			"code": "server_error", "message": "the provider broke down",
		}
	default:
		reason := r.Finish
		if reason == "length" {
			reason = "max_output_tokens"
		}
		r.end["status"], r.end["incomplete_details"] = "incomplete", map[string]any{"reason": reason}
		for _, item := range r.items {
			if item["type"] == "message" {
				item["status"] = "incomplete"
			}
		}
	}
	if u != nil {
		r.end["usage"] = map[string]any{
			"input_tokens": u.Prompt, "output_tokens": u.Completion, "total_tokens": u.Total,
			"input_tokens_details": map[string]any{
				"cached_tokens": u.PromptDetails.Cached, "cache_write_tokens": value(u.PromptDetails.Written),
			},
			"output_tokens_details": map[string]any{"reasoning_tokens": u.CompletionDetails.Reasoning},
		}
	}
}

// events are the answer in steps, counted from zero.
func (r *responsesAnswer) events() []event {
	r.add("response.created", map[string]any{"response": r.response})
	r.add("response.in_progress", map[string]any{"response": r.response})
	deltas := r.deltas(r.plan.chunks)
	for index, item := range r.items {
		at := map[string]any{"output_index": index}
		begun := maps.Clone(item)
		begun["status"] = "in_progress"
		switch item["type"] {
		case "reasoning":
			delete(begun, "status")
			begun["summary"] = []any{}
			r.add("response.output_item.added", at, map[string]any{"item": begun})
			r.reason(item, index, deltas)
		case "message":
			begun["content"] = []any{}
			r.add("response.output_item.added", at, map[string]any{"item": begun})
			r.say(item, index, deltas)
		default:
			begun["arguments"] = ""
			r.add("response.output_item.added", at, map[string]any{"item": begun})
			r.call(item, index, deltas)
		}
		r.add("response.output_item.done", at, map[string]any{"item": item})
	}
	r.add("response."+r.end["status"].(string), map[string]any{"response": r.end})
	r.out[len(r.out)-1].last = true
	return r.out
}

// add appends an event made of its parts.
func (r *responsesAnswer) add(kind string, parts ...map[string]any) {
	value := map[string]any{"type": kind, "sequence_number": len(r.out)}
	for _, part := range parts {
		maps.Copy(value, part)
	}
	r.out = append(r.out, event{name: kind, value: value})
}

func (r *responsesAnswer) piece(kind, text string, at map[string]any, more ...map[string]any) {
	r.add(kind, append(more, at, map[string]any{"delta": text})...)
	r.out[len(r.out)-1].chunk = true
}

func (r *responsesAnswer) reason(item map[string]any, index int, deltas []delta) {
	at := map[string]any{"item_id": item["id"], "output_index": index, "summary_index": 0}
	r.add("response.reasoning_summary_part.added", at, map[string]any{"part": summary("")})
	for _, d := range deltas {
		if d.Reasoning != nil {
			r.piece("response.reasoning_summary_text.delta", *d.Reasoning, at)
		}
	}
	r.add("response.reasoning_summary_text.done", at, map[string]any{"text": r.Reasoning})
	r.add("response.reasoning_summary_part.done", at, map[string]any{"part": summary(r.Reasoning)})
}

func (r *responsesAnswer) say(item map[string]any, index int, deltas []delta) {
	at := map[string]any{"item_id": item["id"], "output_index": index, "content_index": 0}
	none := map[string]any{"logprobs": []any{}}
	r.add("response.content_part.added", at, map[string]any{"part": outputText("")})
	for _, d := range deltas {
		if d.Content != nil {
			r.piece("response.output_text.delta", *d.Content, at, none)
		}
	}
	r.add("response.output_text.done", at, none, map[string]any{"text": *r.Content})
	r.add("response.content_part.done", at, map[string]any{"part": outputText(*r.Content)})
}

func (r *responsesAnswer) call(item map[string]any, index int, deltas []delta) {
	at := map[string]any{"item_id": item["id"], "output_index": index}
	for _, d := range deltas {
		if len(d.Calls) > 0 && d.Calls[0].ID == "" && r.Calls[*d.Calls[0].Index].ID == item["call_id"] {
			r.piece("response.function_call_arguments.delta", d.Calls[0].Function.Arguments, at)
		}
	}
	r.add("response.function_call_arguments.done", at, map[string]any{
		"name": item["name"], "arguments": item["arguments"],
	})
}
