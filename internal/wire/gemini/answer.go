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

// Answer implements upstream.Exchange. A blocked prompt yields an empty answer with the finish reason content_filter.
func (e *exchange) Answer(body []byte) ([]byte, error) {
	var g generateResponse
	if err := json.Unmarshal(body, &g, lenient); err != nil {
		return nil, err
	}
	if g.Error != nil {
		_, body := g.Error.errorAnswer(g.Error.status())
		return body, nil
	}
	a := chat.Answer{
		ID: cmp.Or(g.ResponseID, e.id), Object: "chat.completion", Created: e.created,
		Model: cmp.Or(g.ModelVersion, e.model),
		Usage: g.UsageMetadata.usage(),
	}
	for i := range g.Candidates {
		choice, err := e.choice(&g.Candidates[i], a.ID)
		var f generationError
		if errors.As(err, &f) {
			return f.errorBody(), nil
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
		a.Choices = []chat.Choice{{
			Message:      chat.Reply{Role: chat.RoleAssistant, Content: new(string)},
			FinishReason: chat.ContentFilter,
		}}
	}
	slices.SortFunc(a.Choices, func(x, y chat.Choice) int { return cmp.Compare(x.Index, y.Index) })
	return a.Encode()
}

// choice converts a complete candidate.
func (e *exchange) choice(c *candidate, answer string) (chat.Choice, error) {
	v, err := e.candidate(c.Index)
	if err != nil {
		return chat.Choice{}, err
	}
	if v.finish != "" {
		return chat.Choice{}, fmt.Errorf("two candidates have the index %d", c.Index)
	}
	reply := chat.Reply{Role: chat.RoleAssistant}
	for i := range c.Content.Parts {
		deltas, err := v.addPart(&c.Content.Parts[i], answer)
		if err != nil {
			return chat.Choice{}, err
		}
		for _, d := range deltas {
			appendDelta(&reply, d)
		}
	}
	if v.finish, err = v.finishReason(c); err != nil {
		return chat.Choice{}, err
	}
	if v.finish == "" {
		return chat.Choice{}, fmt.Errorf("the candidate of index %d has not ended", c.Index)
	}
	if reply.Content == nil && len(reply.ToolCalls) == 0 {
		reply.Content = new(string)
	}
	for i := range reply.ReasoningDetails {
		reply.ReasoningDetails[i].Index = nil // for streams only
	}
	return chat.Choice{Index: c.Index, Message: reply, Logprobs: c.Logprobs.openAI(), FinishReason: v.finish}, nil
}

// candidate returns the reader of a candidate by index.
func (e *exchange) candidate(i int) (*candidateReader, error) {
	if i < 0 || i >= e.choices {
		return nil, fmt.Errorf("a candidate has the index %d, and %d were asked for", i, e.choices)
	}
	if e.candidates[i] == nil {
		e.candidates[i] = &candidateReader{index: i, singleCall: e.singleCall}
	}
	return e.candidates[i], nil
}

// appendDelta adds a delta to a message. The last signature of a text replaces earlier ones.
func appendDelta(r *chat.Reply, d chat.Delta) {
	if d.Content != nil {
		if r.Content == nil {
			r.Content = new(string)
		}
		*r.Content += *d.Content
	}
	if d.ReasoningContent != nil {
		r.ReasoningContent += *d.ReasoningContent
	}
	r.ReasoningDetails = chat.JoinThoughts(append(r.ReasoningDetails, d.ReasoningDetails...))
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

// errorBody is the body of an error in place of an answer.
func (f generationError) errorBody() []byte {
	return chat.ErrorBody(http.StatusBadGateway, fault.TypeAPI, string(f))
}

// openAI returns the log probabilities in OpenAI's shape; nil means null.
func (l *logprobsResult) openAI() jsontext.Value {
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
	converted := struct {
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
		converted.Content = append(converted.Content, c)
	}
	text, err := json.Marshal(&converted, lenient)
	if err != nil { // cannot happen: it holds strings and numbers only
		return nil
	}
	return text
}
