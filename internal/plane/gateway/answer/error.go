package answer

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Error is what a provider says went wrong, in its own words.
type Error struct {
	Message string // empty if it says nothing that can be read
	Code    string // its word for programs, such as context_length_exceeded; empty for none
	Param   string // the parameter at fault; empty for none
	Status  int    // the HTTP status that the error names or implies; 0 for none
}

// Bounds of an error's texts, in bytes.
const (
	maxMessage = 1000
	maxParam   = 200
	maxCode    = 64
)

// ReadError reads an error of any known form: the body of a refusal, or the error inside of an answer. A body that is
// no JSON is a message, and the title of a page of HTML is. redact removes secrets from all texts.
func ReadError(body []byte, redact func(string) string) Error {
	var r errorReader
	e := Error{Message: bounded(redact(r.read(body)), maxMessage), Param: bounded(redact(r.param), maxParam)}
	e.Status, e.Code = r.status, r.code
	if n, err := strconv.Atoi(r.code); err == nil && n >= 100 && n < 600 { // most codes are words
		e.Status, e.Code = n, ""
	}
	if !isWord(redact(e.Code)) {
		e.Code = ""
	}
	if !unicode.IsLetter(rune(cmp.Or(e.Code, " ")[0])) && saysTooLong(r.kind, e.Message) {
		e.Code = contextExceeded
	}
	if e.Status < http.StatusBadRequest {
		e.Status = impliedStatus(r.kind, e.Code)
	}
	return e
}

// bounded returns a text as valid UTF-8 of at most most bytes and an ellipsis.
func bounded(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text
}

// isWord reports whether a code is one word, as programs compare it.
func isWord(code string) bool {
	for _, c := range []byte(code) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return len(code) <= maxCode
}

// contextExceeded is OpenAI's code for a request that is longer than the model's context. Clients that shorten their
// requests look for it, or for OpenAI's own words.
const contextExceeded = "context_length_exceeded"

// tooLong are the words, in lower case, by which providers without that code say the same.
var tooLong = []string{
	"maximum context length", "maximum context limit", "model's context length", // OpenAI, vLLM, SGLang, Mistral
	"exceeds the context window", "input tokens exceed the configured limit", // OpenAI's Responses API
	"longer than the maximum model length",       // vLLM
	"exceeds the available context size",         // llama.cpp
	"`inputs` tokens + `max_new_tokens` must be", // TGI
	"`inputs` must have less than",               // TGI
	"input length exceeds the context length",    // Ollama
	"tokens when context the overflows",          // LM Studio, to the letter
	"prompt is too long", "exceed context limit", // Anthropic
	"exceeds the maximum number of tokens allowed", // Gemini
	"number of tokens in the prompt cannot exceed", // Cohere
	"maximum prompt length is",                     // xAI
	"input is too long for requested model",        // Bedrock
	"please reduce the length of the messages",     // Groq and others
	"please reduce the length of the prompt",       // Together and others
	"reduce your prompt; or completion length",     // DeepSeek and others, after OpenAI's older words
	"while limit is", "exceeded model token limit", // Cerebras, Moonshot
}

// saysTooLong reports whether an error says that the request is longer than the model's context.
func saysTooLong(kind, message string) bool {
	if kind == "exceed_context_size_error" { // llama.cpp
		return true
	}
	message = strings.ToLower(message)
	for _, words := range tooLong {
		if strings.Contains(message, words) {
			return true
		}
	}
	return false
}

// impliedStatus returns the status that an error implies by its type and code, or 0.
func impliedStatus(kind, code string) int {
	switch {
	case kind == "rate_limit_error", code == "rate_limit_exceeded":
		return http.StatusTooManyRequests
	case kind == "invalid_request_error":
		return http.StatusBadRequest
	case code == contextExceeded, strings.HasPrefix(code, "invalid_"), strings.Contains(code, "image"):
		return http.StatusBadRequest
	default:
		return 0
	}
}
