package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/wire/chat"
)

// Answer implements upstream.Exchange. A prompt that was blocked has an answer, which was filtered.
func (e *exchange) Answer(body []byte) ([]byte, error) {
	var g generated
	if err := json.Unmarshal(body, &g, lenient); err != nil {
		return nil, err
	}
	if g.Error != nil {
		_, told := g.Error.tell(g.Error.status())
		return told, nil
	}
	a := chat.Answer{
		ID: cmp.Or(g.ResponseID, e.id), Object: "chat.completion", Created: e.made, Model: cmp.Or(g.ModelVersion, e.model),
		Usage: g.UsageMetadata.count(),
	}
	for i := range g.Candidates {
		choice, err := e.choice(&g.Candidates[i], a.ID)
		var f failed
		if errors.As(err, &f) {
			return f.tell(), nil
		}
		if err != nil {
			return nil, err
		}
		a.Choices = append(a.Choices, choice)
	}
	if len(a.Choices) == 0 {
		if g.PromptFeedback.BlockReason == "" {
			return nil, errors.New("the answer holds no candidates")
		}
		a.Choices = []chat.Choice{{Message: chat.Reply{Role: chat.Assistant, Content: new(string)}, FinishReason: chat.ContentFilter}}
	}
	slices.SortFunc(a.Choices, func(x, y chat.Choice) int { return cmp.Compare(x.Index, y.Index) })
	return a.Encode()
}

// choice is what a candidate says, all of it.
func (e *exchange) choice(c *candidate, answer string) (chat.Choice, error) {
	v, err := e.voice(c.Index)
	if err != nil {
		return chat.Choice{}, err
	}
	if v.finish != "" {
		return chat.Choice{}, fmt.Errorf("two candidates have the index %d", c.Index)
	}
	reply := chat.Reply{Role: chat.Assistant}
	for i := range c.Content.Parts {
		deltas, err := v.hear(&c.Content.Parts[i], answer)
		if err != nil {
			return chat.Choice{}, err
		}
		for _, d := range deltas {
			fold(&reply, d)
		}
	}
	if v.finish, err = v.end(c); err != nil {
		return chat.Choice{}, err
	}
	if v.finish == "" {
		return chat.Choice{}, fmt.Errorf("the candidate of index %d has not ended", c.Index)
	}
	if reply.Content == nil && len(reply.ToolCalls) == 0 {
		reply.Content = new(string)
	}
	for i := range reply.ReasoningDetails {
		reply.ReasoningDetails[i].Index = nil // of streams
	}
	return chat.Choice{Index: c.Index, Message: reply, Logprobs: c.Logprobs.tell(), FinishReason: v.finish}, nil
}

// voice is the candidate of an index.
func (e *exchange) voice(i int) (*voice, error) {
	if i < 0 || i >= e.n {
		return nil, fmt.Errorf("a candidate has the index %d, and %d were asked for", i, e.n)
	}
	if e.voices[i] == nil {
		e.voices[i] = &voice{index: i, one: e.one}
	}
	return e.voices[i], nil
}

// fold adds to a reply what is said next. Of the signatures of texts the last stands for all.
func fold(r *chat.Reply, d chat.Delta) {
	if d.Content != nil {
		if r.Content == nil {
			r.Content = new(string)
		}
		*r.Content += *d.Content
	}
	if d.ReasoningContent != nil {
		r.ReasoningContent += *d.ReasoningContent
	}
	r.ReasoningDetails = chat.Whole(append(r.ReasoningDetails, d.ReasoningDetails...))
	for _, call := range d.ToolCalls {
		if *call.Index == len(r.ToolCalls) {
			call.Index = nil
			r.ToolCalls = append(r.ToolCalls, call)
			continue
		}
		r.ToolCalls[*call.Index].Function.Arguments += call.Function.Arguments
	}
	if d.ExtraContent != nil {
		r.ExtraContent = d.ExtraContent
	}
}

// tell is a failure in place of an answer.
func (f failed) tell() []byte { return chat.Failure(http.StatusBadGateway, fault.TypeAPI, string(f)) }

// tell is likelihoods as OpenAI tells them; nil is null.
func (l *logprobsResult) tell() jsontext.Value {
	if l == nil {
		return nil
	}
	type token struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
		Bytes   []int   `json:"bytes"`
	}
	type choice struct {
		token
		Top []token `json:"top_logprobs"`
	}
	read := func(p logprob) token {
		t := token{Token: p.Token, Logprob: p.LogProbability, Bytes: []int{}}
		for _, b := range []byte(p.Token) {
			t.Bytes = append(t.Bytes, int(b))
		}
		return t
	}
	told := struct {
		Content []choice `json:"content"`
		Refusal *string  `json:"refusal"`
	}{Content: []choice{}}
	for i, chosen := range l.ChosenCandidates {
		c := choice{token: read(chosen), Top: []token{}}
		if i < len(l.TopCandidates) {
			for _, p := range l.TopCandidates[i].Candidates {
				c.Top = append(c.Top, read(p))
			}
		}
		told.Content = append(told.Content, c)
	}
	text, err := json.Marshal(&told, lenient)
	if err != nil { // it is made of texts and numbers alone
		return nil
	}
	return text
}
