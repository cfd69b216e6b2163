package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A completion is what a model says, the same in every choice, whether it is streamed or not.
type completion struct {
	ID        string
	Created   int64
	Model     string
	Content   *string // nil when tools are called
	JSON      bool    // Content is
	Reasoning string
	Refusal   string
	Hangs     bool // it never comes
	Calls     []call
	Finish    string
	Choices   int
}

type call struct {
	Index    *int     `json:"index,omitempty"` // in streams only
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

func (p *provider) chat(a *answer) {
	c := complete(&a.plan, &a.ask)
	c.ID, c.Created, c.Model = p.id("chatcmpl"), time.Now().Unix(), a.plan.name
	switch {
	case c.Hangs:
		faults["hang"](a)
		return
	case a.ask.Stream:
		a.stream(c)
		return
	}
	a.whole(c.body(a.plan.report(a.ask.input(), c.tokens(), words(c.Reasoning)*c.Choices).raw()))
}

func complete(p *plan, a *ask) *completion {
	c := &completion{Finish: "stop", Choices: a.choices(), Reasoning: prose(p.reasoning)}
	tools := a.called()
	switch {
	case p.judge != "":
		c.rule(p, a)
	case p.tool && len(tools) > 0:
		for i, t := range tools {
			c.Calls = append(c.Calls, call{ID: fmt.Sprintf("call_%d", i), Type: "function", Function: function{
				t.Function.Name, encode(example(object(t.Function.Parameters))),
			}})
		}
		c.Finish = "tool_calls"
		if p.preface > 0 {
			c.say(prose(p.preface))
		}
	case p.json && a.ResponseFormat != nil && a.ResponseFormat.Type != "text":
		c.JSON = true
		c.say(encode(example(object(a.ResponseFormat.JSONSchema.Schema))))
	case p.big > 0:
		c.say(strings.Repeat("words and more words ", p.big/20+1)[:p.big])
	default:
		n := p.text
		if n < 0 {
			n = p.chunks
		}
		if limit := a.limit(); limit >= 0 && limit < n {
			n, c.Finish = limit, "length"
		}
		c.say(strings.TrimSpace(prose(n) + p.mark(a)))
	}
	if p.finish != "" {
		c.Finish = p.finish
	}
	return c
}

func (c *completion) say(text string) { c.Content = &text }

// object is schema, or that of any object where there is none.
func object(schema map[string]any) map[string]any {
	if schema == nil {
		return map[string]any{"type": "object"}
	}
	return schema
}

// prose is n words.
func prose(n int) string {
	vocabulary := strings.Fields("every request is held before it runs and charged for what came back")
	out := make([]string, n)
	for i := range out {
		out[i] = vocabulary[i%len(vocabulary)]
	}
	return strings.Join(out, " ")
}

// tokens counts the output.
func (c *completion) tokens() int {
	n := words(c.Reasoning)
	if c.Content != nil {
		n += words(*c.Content)
	}
	for _, call := range c.Calls {
		n += words(call.Function.Name) + words(call.Function.Arguments)
	}
	return n * c.Choices
}

type usage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	Total         int `json:"total_tokens"`
	PromptDetails struct {
		Cached  int  `json:"cached_tokens"`
		Written *int `json:"cache_write_tokens,omitempty"`
		Audio   *int `json:"audio_tokens,omitempty"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// report is the usage that the plan tells, or nil.
func (p *plan) report(in, out, reasoning int) *usage {
	by := 1
	switch p.usage {
	case "none":
		return nil
	case "zero":
		by = 0
	case "over":
		by = 100
	}
	u := &usage{Prompt: in * by, Completion: out * by}
	u.CompletionDetails.Reasoning = reasoning * by
	for _, told := range []struct{ value, field *int }{{p.in, &u.Prompt}, {p.out, &u.Completion}, {p.cached, &u.PromptDetails.Cached}} {
		if told.value != nil {
			*told.field = *told.value
		}
	}
	u.PromptDetails.Written, u.PromptDetails.Audio = p.written, p.audio
	u.Total = u.Prompt + u.Completion
	return u
}

func (u *usage) raw() json.RawMessage {
	if u == nil {
		return nil
	}
	return json.RawMessage(encode(u))
}

type choice struct {
	Index   int      `json:"index"`
	Message *reply   `json:"message,omitempty"`
	Delta   *delta   `json:"delta,omitempty"`
	Logs    []string `json:"logprobs"` // always null
	Finish  *string  `json:"finish_reason"`
}

type reply struct {
	Role      string  `json:"role"`
	Content   *string `json:"content"`
	Reasoning string  `json:"reasoning_content,omitempty"`
	Refusal   *string `json:"refusal"`
	Calls     []call  `json:"tool_calls,omitempty"`
}

// A body is a completion, or a chunk of one. Usage is left out when it is nil; null must be set explicitly.
type body struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Model       string          `json:"model"`
	Fingerprint string          `json:"system_fingerprint"`
	Choices     []choice        `json:"choices"`
	Usage       json.RawMessage `json:"usage,omitempty"`
}

func (c *completion) body(usage json.RawMessage) body {
	b := body{c.ID, "chat.completion", c.Created, c.Model, "fp_provider", nil, usage}
	var refusal *string
	if c.Refusal != "" {
		refusal = &c.Refusal
	}
	for i := range c.Choices {
		b.Choices = append(b.Choices, choice{Index: i, Finish: &c.Finish, Message: &reply{
			Role: "assistant", Content: c.Content, Reasoning: c.Reasoning, Refusal: refusal, Calls: c.Calls,
		}})
	}
	return b
}
