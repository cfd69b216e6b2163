package gateway

import (
	"sovereign/internal/live"
	"sovereign/internal/scan"
	"sovereign/internal/token"
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

// usuals are the members of a usage as OpenAI writes it, and of the two objects inside.
var (
	usuals = map[string]int{"prompt_tokens": ofPrompt, "completion_tokens": ofCompletion, "total_tokens": ofOthers}
	inside = map[string]map[string]int{
		"prompt_tokens_details":     {"cached_tokens": ofCached, "cache_write_tokens": ofWritten, "audio_tokens": ofHeard},
		"completion_tokens_details": {"reasoning_tokens": ofReasoned, "audio_tokens": ofSpoken, "accepted_prediction_tokens": ofOthers, "rejected_prediction_tokens": ofOthers},
	}
)

// plainUsage reads a usage that is written as OpenAI writes it, at a fraction of what decoding costs. It is nil when anything
// in it is unusual, if only a name that is not known here.
func plainUsage(value []byte) *live.Usage {
	var told [countKinds]token.Count
	var room [8]scan.Member
	members, err := scan.Object(value, room[:0])
	if err != nil {
		return nil
	}
	reported := false
	for _, m := range members {
		if names, ok := inside[m.Name]; ok {
			if !plainCounts(m.Value, names, &told) {
				return nil
			}
			continue
		}
		kind, ok := usuals[m.Name]
		if !ok || !plainCount(m.Value, &told[kind]) {
			return nil
		}
		reported = reported || kind == ofPrompt
	}
	if !reported {
		return nil
	}
	return usage(&told[ofPrompt], inputDetails{&told[ofCached], &told[ofWritten], &told[ofHeard]}, &told[ofCompletion], outputDetails{&told[ofReasoned], &told[ofSpoken]})
}

func plainCounts(value []byte, names map[string]int, told *[countKinds]token.Count) bool {
	if string(value) == "null" {
		return true
	}
	var room [8]scan.Member
	members, err := scan.Object(value, room[:0])
	for _, m := range members {
		kind, ok := names[m.Name]
		if !ok || !plainCount(m.Value, &told[kind]) {
			return false
		}
	}
	return err == nil
}

// plainCount reads a count that is nothing but digits.
func plainCount(value []byte, to *token.Count) bool {
	const mostDigits = 9 // far beyond any context
	if len(value) == 0 || len(value) > mostDigits || value[0] == '0' && len(value) > 1 {
		return false
	}
	var n token.Count
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
		n = 10*n + token.Count(c-'0')
	}
	*to = n
	return true
}
