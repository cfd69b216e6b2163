package answer

import (
	"bytes"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/scan"
	"sovereign/internal/text/token"
)

// Usage reads a chat's or an embedding's usage object. It returns nil if the object has no valid prompt_tokens: then
// the provider has reported no usage.
func Usage(value []byte) *live.Usage {
	if u := plainUsage(value); u != nil {
		return u
	}
	return decodedUsage(value)
}

// decodedUsage reads a usage object however it is written.
func decodedUsage(value []byte) *live.Usage {
	var u struct {
		Prompt            *token.Count  `json:"prompt_tokens"`
		Completion        *token.Count  `json:"completion_tokens"`
		PromptDetails     inputDetails  `json:"prompt_tokens_details"`
		CompletionDetails outputDetails `json:"completion_tokens_details"`
	}
	if lenient.Decode(value, &u) != nil || u.Prompt == nil {
		return nil
	}
	return newUsage(u.Prompt, u.PromptDetails, u.Completion, u.CompletionDetails)
}

// inputDetails and outputDetails are the parts of a usage's two totals that have prices of their own.
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

// newUsage puts a usage together. The parts of a total do not overlap, and together they are no more than the total.
func newUsage(input *token.Count, in inputDetails, output *token.Count, out outputDetails) *live.Usage {
	u := &live.Usage{Input: input.Or0(), Output: output.Or0()}
	part := func(left *int64, reported *token.Count) int64 {
		n := min(reported.Or0(), *left)
		*left -= n
		return n
	}
	left := u.Input
	u.Cached, u.Written, u.AudioInput = part(&left, in.Cached), part(&left, in.Written), part(&left, in.Audio)
	left = u.Output
	u.Reasoning, u.AudioOutput = part(&left, out.Reasoning), part(&left, out.Audio)
	return u
}

// The counts that a usage object may hold.
const (
	countPrompt = iota
	countCompletion
	countCached
	countWritten
	countAudioInput
	countReasoning
	countAudioOutput
	countOther // no price depends on it
	countKinds
)

// countOf returns which count a member of a usage object holds, as OpenAI names it. parent is the member that holds it,
// or nothing at the top.
func countOf(parent, name []byte) (kind int, ok bool) {
	switch string(parent) {
	case "":
		switch string(name) {
		case "prompt_tokens":
			return countPrompt, true
		case "completion_tokens":
			return countCompletion, true
		case "total_tokens":
			return countOther, true
		}
	case "prompt_tokens_details":
		switch string(name) {
		case "cached_tokens":
			return countCached, true
		case "cache_write_tokens":
			return countWritten, true
		case "audio_tokens":
			return countAudioInput, true
		}
	case "completion_tokens_details":
		switch string(name) {
		case "reasoning_tokens":
			return countReasoning, true
		case "audio_tokens":
			return countAudioOutput, true
		case "accepted_prediction_tokens", "rejected_prediction_tokens":
			return countOther, true
		}
	}
	return 0, false
}

// plainUsage reads a usage object in OpenAI's form, at a fraction of what decoding costs. It returns nil when anything
// in it is unusual, such as an unknown name.
func plainUsage(value []byte) *live.Usage {
	p := countReader{text: value}
	if !p.object(nil) || len(p.text) > 0 || p.seen&(1<<countPrompt) == 0 {
		return nil
	}
	n := &p.counts
	return newUsage(
		&n[countPrompt], inputDetails{&n[countCached], &n[countWritten], &n[countAudioInput]},
		&n[countCompletion], outputDetails{&n[countReasoning], &n[countAudioOutput]},
	)
}

// A countReader reads counts off the front of a text.
type countReader struct {
	text   []byte
	counts [countKinds]token.Count
	seen   uint // bit set of the counts that were read
}

// next reads the byte c, and the spaces around it.
func (p *countReader) next(c byte) bool {
	p.space()
	if len(p.text) == 0 || p.text[0] != c {
		return false
	}
	p.text = p.text[1:]
	p.space()
	return true
}

func (p *countReader) space() {
	for len(p.text) > 0 && (p.text[0] == ' ' || p.text[0] == '\n' || p.text[0] == '\r' || p.text[0] == '\t') {
		p.text = p.text[1:]
	}
}

// object reads an object of counts. At the top its members may be such objects too.
func (p *countReader) object(parent []byte) bool {
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
		if p.text = p.text[end+2:]; !p.next(':') || !p.member(parent, name) {
			return false
		}
		if !p.next(',') {
			return p.next('}')
		}
	}
}

// member reads the value of a member.
func (p *countReader) member(parent, name []byte) bool {
	if kind, ok := countOf(parent, name); ok {
		if kind != countOther && p.seen&(1<<kind) != 0 {
			return false // twice
		}
		p.seen |= 1 << kind
		return p.count(&p.counts[kind])
	}
	switch {
	case parent != nil || string(name) != "prompt_tokens_details" && string(name) != "completion_tokens_details":
		return false
	case bytes.HasPrefix(p.text, null):
		p.text = p.text[len(null):]
		return true
	default:
		return p.object(name)
	}
}

var null = []byte("null")

// count reads a count that is nothing but digits.
func (p *countReader) count(to *token.Count) bool {
	const maxDigits = 9 // far beyond any context
	var n token.Count
	digits := 0
	for digits < len(p.text) && '0' <= p.text[digits] && p.text[digits] <= '9' {
		n = 10*n + token.Count(p.text[digits]-'0')
		if digits++; digits > maxDigits {
			return false
		}
	}
	if digits == 0 || p.text[0] == '0' && digits > 1 {
		return false
	}
	*to, p.text = n, p.text[digits:]
	return true
}

// UsageIn returns the usage that a whole answer reports, or a zero one.
func UsageIn(body []byte) live.Usage {
	members, err := scan.Object(body, nil)
	if err != nil {
		return live.Usage{}
	}
	if i, ok := lenient.Member(members, "usage"); ok {
		if used := Usage(members[i].Value); used != nil {
			return *used
		}
	}
	return live.Usage{}
}

// ResponseUsage reads the usage object of the Responses API.
func ResponseUsage(value []byte) *live.Usage {
	var u struct {
		Input         *token.Count  `json:"input_tokens"`
		Output        *token.Count  `json:"output_tokens"`
		InputDetails  inputDetails  `json:"input_tokens_details"`
		OutputDetails outputDetails `json:"output_tokens_details"`
	}
	if lenient.Decode(value, &u) != nil || u.Input == nil {
		return nil
	}
	return newUsage(u.Input, u.InputDetails, u.Output, u.OutputDetails)
}
