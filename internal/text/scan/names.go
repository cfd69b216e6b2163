package scan

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
)

// decodeName decodes the quoted member name raw. Common names are interned; others are copied.
func decodeName(raw []byte) (string, error) {
	inner := raw[1 : len(raw)-1]
	if name := commonNameTable[nameSlot(inner)]; string(inner) == name {
		return name, nil
	}
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), nil
	}
	return unescaped(raw)
}

// unescaped decodes a name with escapes. It is a function of its own because taking the address of a Member's Name
// would make every Member escape to the heap.
func unescaped(raw []byte) (name string, err error) {
	err = json.Unmarshal(raw, &name)
	return name, err
}

const nameSlots = 512

// nameSlot is a perfect hash of the common names: the factors were searched for until no two of them collided.
func nameSlot(name []byte) int {
	if len(name) == 0 {
		return 0
	}
	return (len(name)*374 + int(name[0])*150 + int(name[len(name)/2])*254 + int(name[len(name)-1])*221) % nameSlots
}

// commonNameTable interns the common names by nameSlot. A name that is not in it costs one allocation.
var commonNameTable = func() (of [nameSlots]string) {
	for name := range strings.FieldsSeq(commonNames) {
		of[nameSlot([]byte(name))] = name
	}
	return of
}()

const commonNames = `
	model models messages stream stream_options max_tokens max_completion_tokens n temperature top_p top_k stop seed user metadata
	tools tool_choice parallel_tool_calls response_format frequency_penalty presence_penalty logit_bias logprobs top_logprobs
	reasoning reasoning_effort verbosity modalities audio prediction service_tier store safety_identifier prompt_cache_key
	include_usage input instructions max_output_tokens text include truncation previous_response_id encoding_format dimensions
	query documents top_n return_documents id object created choices usage system_fingerprint index delta message role content refusal
	finish_reason reasoning_content annotations tool_calls function name arguments type error code param obfuscation
	prompt_tokens completion_tokens total_tokens prompt_tokens_details completion_tokens_details cached_tokens audio_tokens reasoning_tokens
	accepted_prediction_tokens rejected_prediction_tokens cache_write_tokens
	data embedding results provider sequence_number item_id output_index content_index response item part output status`
