package gateway

import (
	"bytes"

	"sovereign/internal/live"
	"sovereign/internal/text/token"
)

// usageOf reads a usage object. What is missing, or is no count, is nil: it was not reported.
func usageOf(value []byte) *live.Usage {
	if u := plainUsage(value); u != nil {
		return u
	}
	return decodedUsage(value)
}

// decodedUsage reads a usage however it is written.
func decodedUsage(value []byte) *live.Usage {
	var u struct {
		Prompt            *token.Count  `json:"prompt_tokens"`
		Completion        *token.Count  `json:"completion_tokens"`
		PromptDetails     inputDetails  `json:"prompt_tokens_details"`
		CompletionDetails outputDetails `json:"completion_tokens_details"`
	}
	if lenient(value, &u) != nil || u.Prompt == nil {
		return nil
	}
	return usage(u.Prompt, u.PromptDetails, u.Completion, u.CompletionDetails)
}

// inputDetails and outputDetails are the parts of a usage's two sums that have prices of their own.
type (
	inputDetails struct {
		Cached  *token.Count `json:"cached_tokens"`
		Written *token.Count `json:"cache_write_tokens"`
		Audio   *token.Count `json:"audio_tokens"`
	}
	outputDetails struct {
		Reasoning *token.Count `json:"reasoning_tokens"`
		Audio     *token.Count `json:"audio_tokens"`
	}
)

// usage puts a usage together. The parts of a sum do not overlap, and are no more than it.
func usage(input *token.Count, in inputDetails, output *token.Count, out outputDetails) *live.Usage {
	u := &live.Usage{Input: input.Or0(), Output: output.Or0()}
	part := func(left *int64, told *token.Count) int64 {
		n := min(told.Or0(), *left)
		*left -= n
		return n
	}
	left := u.Input
	u.Cached, u.Written, u.AudioInput = part(&left, in.Cached), part(&left, in.Written), part(&left, in.Audio)
	left = u.Output
	u.Reasoning, u.AudioOutput = part(&left, out.Reasoning), part(&left, out.Audio)
	return u
}

// The counts that a usage may hold.
const (
	ofPrompt = iota
	ofCompletion
	ofCached
	ofWritten
	ofHeard
	ofReasoned
	ofSpoken
	ofOthers // which no price depends on
	countKinds
)

// usual is which count a member of a usage as OpenAI writes it holds. Inside of its details names mean something else.
func usual(inside, name []byte) (kind int, ok bool) {
	switch string(inside) {
	case "":
		switch string(name) {
		case "prompt_tokens":
			return ofPrompt, true
		case "completion_tokens":
			return ofCompletion, true
		case "total_tokens":
			return ofOthers, true
		}
	case "prompt_tokens_details":
		switch string(name) {
		case "cached_tokens":
			return ofCached, true
		case "cache_write_tokens":
			return ofWritten, true
		case "audio_tokens":
			return ofHeard, true
		}
	case "completion_tokens_details":
		switch string(name) {
		case "reasoning_tokens":
			return ofReasoned, true
		case "audio_tokens":
			return ofSpoken, true
		case "accepted_prediction_tokens", "rejected_prediction_tokens":
			return ofOthers, true
		}
	}
	return 0, false
}

// plainUsage reads a usage that is written as OpenAI writes it, at a fraction of what decoding costs. It is nil when anything
// in it is unusual, if only a name that is not known here.
func plainUsage(value []byte) *live.Usage {
	p := plain{text: value}
	if !p.counts(nil) || len(p.text) > 0 || p.seen&(1<<ofPrompt) == 0 {
		return nil
	}
	told := &p.told
	return usage(&told[ofPrompt], inputDetails{&told[ofCached], &told[ofWritten], &told[ofHeard]}, &told[ofCompletion], outputDetails{&told[ofReasoned], &told[ofSpoken]})
}

// A plain reads counts off the front of a text.
type plain struct {
	text []byte
	told [countKinds]token.Count
	seen uint // the kinds that were told
}

// next takes a byte, and the spaces around it.
func (p *plain) next(c byte) bool {
	p.space()
	if len(p.text) == 0 || p.text[0] != c {
		return false
	}
	p.text = p.text[1:]
	p.space()
	return true
}

func (p *plain) space() {
	for len(p.text) > 0 && (p.text[0] == ' ' || p.text[0] == '\n' || p.text[0] == '\r' || p.text[0] == '\t') {
		p.text = p.text[1:]
	}
}

// counts takes an object of counts, and of objects of them where it is inside of none itself.
func (p *plain) counts(inside []byte) bool {
	if !p.next('{') {
		return false
	}
	if p.next('}') {
		return true
	}
	for {
		if len(p.text) == 0 || p.text[0] != '"' {
			return false
		}
		end := bytes.IndexByte(p.text[1:], '"')
		if end < 0 {
			return false
		}
		name := p.text[1 : end+1]
		if p.text = p.text[end+2:]; !p.next(':') || !p.member(inside, name) {
			return false
		}
		if !p.next(',') {
			return p.next('}')
		}
	}
}

func (p *plain) member(inside, name []byte) bool {
	if kind, ok := usual(inside, name); ok {
		if kind != ofOthers && p.seen&(1<<kind) != 0 {
			return false // twice
		}
		p.seen |= 1 << kind
		return p.count(&p.told[kind])
	}
	switch {
	case inside != nil || string(name) != "prompt_tokens_details" && string(name) != "completion_tokens_details":
		return false
	case bytes.HasPrefix(p.text, null):
		p.text = p.text[len(null):]
		return true
	default:
		return p.counts(name)
	}
}

var null = []byte("null")

// count takes a count that is nothing but digits.
func (p *plain) count(to *token.Count) bool {
	const mostDigits = 9 // far beyond any context
	var n token.Count
	digits := 0
	for digits < len(p.text) && '0' <= p.text[digits] && p.text[digits] <= '9' {
		n = 10*n + token.Count(p.text[digits]-'0')
		if digits++; digits > mostDigits {
			return false
		}
	}
	if digits == 0 || p.text[0] == '0' && digits > 1 {
		return false
	}
	*to, p.text = n, p.text[digits:]
	return true
}
