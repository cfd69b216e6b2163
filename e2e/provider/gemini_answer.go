package main

import (
	"encoding/base64"
	"encoding/json"
)

func (p *provider) gemini(a *answer) {
	if a.ask.Input != nil {
		geminiEmbeddings(a)
		return
	}
	c := complete(&a.plan, &a.ask)
	thoughts := words(c.Reasoning) * c.Choices
	tokens := c.tokens()
	if !a.ask.thinks {
		c.Reasoning = "" // it is not shown, but it costs
	}
	for i := range c.Calls {
		c.Calls[i].ID = p.id("fc")
	}
	g := &geminiAnswer{
		completion: c, plan: &a.plan, usage: a.plan.report(a.ask.input(), tokens, thoughts), id: p.id("gemini"),
	}
	if len(c.Calls) > 0 {
		p.calls.Store(c.Calls[0].ID, true)
		p.calls.Store(vouches(c.Calls[0].Function.Name, arguments(c.Calls[0])), true)
	}
	switch {
	case a.plan.block != "" && a.ask.Stream:
		a.play([]event{{value: g.blocked(), last: true}})
	case a.plan.block != "":
		a.whole(g.blocked())
	case a.ask.Stream:
		a.play(g.events())
	default:
		a.whole(g.body(g.parts(), g.finish(), g.figures(true)))
	}
}

// A geminiAnswer is a completion in Google's words.
type geminiAnswer struct {
	*completion
	plan  *plan
	usage *usage // nil when none is told
	id    string
}

// body is a whole answer, or a piece of one.
func (g *geminiAnswer) body(parts []any, finish string, usage any) any {
	out := map[string]any{"modelVersion": g.plan.name, "responseId": g.id}
	var candidates []any
	for i := range g.Choices {
		content := map[string]any{"role": "model"}
		if len(parts) > 0 { // a candidate that says nothing has none
			content["parts"] = parts
		}
		one := map[string]any{"content": content, "index": i}
		if finish != "" {
			one["finishReason"] = finish
		}
		candidates = append(candidates, one)
	}
	out["candidates"] = candidates
	if usage != nil {
		out["usageMetadata"] = usage
	}
	return out
}

func (g *geminiAnswer) blocked() any {
	out := map[string]any{
		"promptFeedback": map[string]any{"blockReason": g.plan.block}, "modelVersion": g.plan.name, "responseId": g.id,
	}
	if usage := g.figures(false); usage != nil {
		out["usageMetadata"] = usage
	}
	return out
}

func (g *geminiAnswer) parts() (out []any) {
	if g.Reasoning != "" {
		out = append(out, map[string]any{"text": g.Reasoning, "thought": true})
	}
	if g.Content != nil && *g.Content != "" {
		part := map[string]any{"text": *g.Content}
		if g.Reasoning != "" {
			part["thoughtSignature"] = g.vouched()
		}
		out = append(out, part)
	}
	for i := range g.Calls {
		out = append(out, g.called(i))
	}
	return out
}

// called is a call; the first of them has the signature.
func (g *geminiAnswer) called(i int) any {
	one := g.Calls[i]
	part := map[string]any{"functionCall": map[string]any{
		"id": one.ID, "name": one.Function.Name, "args": arguments(one),
	}}
	if i == 0 {
		part["thoughtSignature"] = seal(signed("call", vouches(one.Function.Name, arguments(one))))
	}
	return part
}

func (g *geminiAnswer) vouched() string { return seal(signed("text", *g.Content)) }

// seal encodes a signature in base64, as JSON does bytes.
func seal(signature string) string { return base64.StdEncoding.EncodeToString([]byte(signature)) }

func arguments(c call) (out map[string]any) {
	if json.Unmarshal([]byte(c.Function.Arguments), &out) != nil || out == nil {
		out = map[string]any{}
	}
	return out
}

// finishReasons are Google's words for ours; the plan's are said as they are.
var finishReasons = map[string]string{"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}

func (g *geminiAnswer) finish() string {
	if reason, ok := finishReasons[g.Finish]; ok {
		return reason
	}
	return g.Finish
}

// figures are the usage in Google's words: thoughts are no part of the candidates'. Until the end it knows the prompt's
// alone.
func (g *geminiAnswer) figures(whole bool) any {
	u := g.usage
	if u == nil {
		return nil
	}
	kind := func(modality string, n int) any { return map[string]any{"modality": modality, "tokenCount": n} }
	audio := value(u.PromptDetails.Audio)
	out := map[string]any{
		"promptTokenCount": u.Prompt, "totalTokenCount": u.Prompt,
		"promptTokensDetails": []any{kind("TEXT", u.Prompt-audio)},
	}
	if audio > 0 {
		out["promptTokensDetails"] = []any{kind("TEXT", u.Prompt-audio), kind("AUDIO", audio)}
	}
	if u.PromptDetails.Cached > 0 {
		out["cachedContentTokenCount"] = u.PromptDetails.Cached
		out["cacheTokensDetails"] = []any{kind("TEXT", u.PromptDetails.Cached)}
	}
	if !whole {
		return out
	}
	thoughts := u.CompletionDetails.Reasoning
	out["candidatesTokenCount"] = max(0, u.Completion-thoughts)
	out["totalTokenCount"] = u.Prompt + max(u.Completion, thoughts)
	if thoughts > 0 {
		out["thoughtsTokenCount"] = thoughts
	}
	return out
}

// events are the answer in pieces. A call comes whole; the signature of a text comes last, beside an empty one.
func (g *geminiAnswer) events() (out []event) {
	usage := g.figures(false)
	if g.plan.usage == "last" {
		usage = nil
	}
	for _, d := range g.deltas(g.plan.chunks) {
		var part any
		switch {
		case d.Reasoning != nil:
			part = map[string]any{"text": *d.Reasoning, "thought": true}
		case d.Content != nil:
			part = map[string]any{"text": *d.Content}
		case d.Calls[0].ID != "":
			part = g.called(*d.Calls[0].Index)
		default:
			continue // its arguments came with it
		}
		out = append(out, event{value: g.body([]any{part}, "", usage), chunk: true})
	}
	end := map[string]any{"text": ""}
	if g.Reasoning != "" && g.Content != nil {
		end["thoughtSignature"] = g.vouched()
	}
	return append(out, event{value: g.body([]any{end}, g.finish(), g.figures(true)), last: true})
}

func geminiEmbeddings(a *answer) {
	texts, _ := a.ask.inputs()
	size := dimensions
	if a.ask.Dimensions != nil {
		size = *a.ask.Dimensions
	}
	embeddings := make([]any, len(texts))
	for i, text := range texts {
		embeddings[i] = map[string]any{"values": embed(text, size)}
	}
	out := map[string]any{"embeddings": embeddings}
	if a.plan.in != nil { // the API says nothing of it, unless it is told to
		out["usageMetadata"] = map[string]any{"promptTokenCount": *a.plan.in}
	}
	a.whole(out)
}
