package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// A wire is how a vendor's API lets callers in, and how it fails.
type wire struct {
	key     func(http.Header) string // what a caller authenticates with
	unknown int                      // the status of a key that it does not know
	refusal func(a *answer, status int, code, parameter, message string) any
	broken  func(a *answer, message string) string // the lines of an error in the middle of a stream
	ping    string                                 // its own sign of life between chunks; empty: the plan's comment
}

func bearer(h http.Header) string {
	key, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	return key
}

// openAI is the wire of chat, embeddings and rerank.
var openAI = wire{
	key: bearer, unknown: http.StatusUnauthorized,
	refusal: func(_ *answer, status int, code, parameter, message string) any {
		kind := "invalid_request_error"
		if status == http.StatusTooManyRequests {
			kind = "rate_limit_error"
		} else if status >= http.StatusInternalServerError {
			kind = "server_error"
		}
		return envelope(message, kind, code, parameter)
	},
	broken: func(_ *answer, message string) string {
		return "data: " + encode(envelope(message, "server_error", "", "")) + "\n\n"
	},
}

// A wrong is an error in a request.
type wrong struct{ code, parameter, message string }

func (w *wrong) Error() string { return w.message }

// bad is an error at a path of the body.
func bad(place, format string, values ...any) error {
	return &wrong{"invalid_value", place, strings.TrimPrefix(place+": "+fmt.Sprintf(format, values...), ": ")}
}

// An event is one of a stream. A chunk is content: faults and delays count them. The last is missing where the plan
// wants no end.
type event struct {
	name  string // empty where the wire names no events
	value any
	chunk bool
	last  bool
}

func (e event) lines() string {
	text := "data: " + encode(e.value) + "\n\n"
	if e.name != "" {
		text = "event: " + e.name + "\n" + text
	}
	return text
}

// play sends events as the plan wants it.
func (a *answer) play(events []event) {
	chunks, sent, ping := 0, 0, a.plan.ping
	for _, e := range events {
		if e.chunk {
			chunks++
		}
	}
	if ping != "" && a.wire.ping != "" {
		ping = a.wire.ping
	}
	a.begin()
	if !a.flush() || a.strikes(0) {
		return
	}
	for _, e := range events {
		if e.last && (sent == chunks && a.strikes(never) || a.plan.noDone) {
			break
		}
		if e.chunk && sent > 0 && (ping != "" && !a.lines(ping) || !a.pause(a.plan.chunkDelay)) {
			return
		}
		if !a.lines(e.lines()) {
			return
		}
		a.played++
		if !e.chunk {
			continue
		}
		sent++
		a.log.change(a.record, func(r *record) { r.ChunksSent = sent })
		if a.strikes(sent) || sent == chunks && a.strikes(never) {
			return
		}
	}
	if a.plan.fault == "" {
		a.finish()
	}
}

// difference names the first place where what was sent is not what the vendor's types made of it: a member that they do
// not know, or another value. It is empty where there is none. A text may stand for a list of one block of text, as
// Anthropic has it; lenient says that the types leave out what is empty.
func difference(place string, sent, read any, lenient bool) string {
	if text, ok := sent.(string); ok {
		if blocks, listed := read.([]any); listed {
			sent, read = []any{map[string]any{"type": "text", "text": text}}, blocks
		}
	}
	switch sent := sent.(type) {
	case map[string]any:
		read, ok := read.(map[string]any)
		if !ok {
			return place + " is not what it should be"
		}
		for _, name := range slices.Sorted(maps.Keys(sent)) {
			within := strings.TrimPrefix(place+"."+name, ".")
			if _, known := read[name]; !known {
				if lenient && empty(sent[name]) {
					continue
				}
				return within + " is not known"
			}
			if d := difference(within, sent[name], read[name], lenient); d != "" {
				return d
			}
		}
		for _, name := range slices.Sorted(maps.Keys(read)) {
			if _, there := sent[name]; !there {
				return strings.TrimPrefix(place+"."+name, ".") + " is required"
			}
		}
	case []any:
		read, ok := read.([]any)
		if !ok || len(read) != len(sent) {
			return place + " is not what it should be"
		}
		for i := range sent {
			if d := difference(fmt.Sprintf("%s[%d]", place, i), sent[i], read[i], lenient); d != "" {
				return d
			}
		}
	default:
		if sent != read {
			return fmt.Sprintf("%s is %v, and is read as %v", place, sent, read)
		}
	}
	return ""
}

func empty(value any) bool {
	switch value := value.(type) {
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return value == nil || value == "" || value == 0.0 || value == false
}

// understood decodes a body with a vendor's own type, and refuses what that type does not give back. Members named in
// apart are none of the type's.
func understood(place string, body []byte, into any, apart ...string) error {
	var sent, read any
	if err := json.Unmarshal(body, &sent); err != nil {
		return bad(place, "it is not JSON: %s", err)
	}
	if object, ok := sent.(map[string]any); ok {
		for _, name := range apart {
			delete(object, name)
		}
	}
	decoder := json.NewDecoder(strings.NewReader(encode(sent)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return bad(place, "it is not what it should be: %s", err)
	}
	text, err := json.Marshal(into)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		return bad(place, "it cannot be written again: %s", err)
	}
	_, faithful := into.(json.Unmarshaler) // its types keep what is empty, and refuse nothing themselves
	if d := difference(place, sent, read, !faithful); d != "" {
		return &wrong{"", d, "the vendor's types do not read the body as it was sent: " + d}
	}
	return nil
}
