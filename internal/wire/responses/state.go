package responses

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/wire/chat"
)

// state is what a provider needs to see again and the Responses API has no member for. The caller gets it as the
// encrypted_content of a reasoning item and sends it back with the conversation. It is encoded, not encrypted.
type state struct {
	Thoughts  []chat.Thought    `json:"thoughts,omitempty"`
	Calls     map[string]string `json:"calls,omitempty"`     // Google's signatures of tool calls, by call id
	Signature string            `json:"signature,omitempty"` // Google's signature of the message

	Provider         string `json:"from,omitempty"`             // the provider, if it speaks chat itself
	ReasoningContent bool   `json:"reasoning_content,omitzero"` // it was sent, and may be required back
}

// statePrefix distinguishes our state from encrypted_content of others.
const statePrefix = "sovereign1."

func (s *state) empty() bool {
	return len(s.Thoughts) == 0 && len(s.Calls) == 0 && s.Signature == "" && !s.ReasoningContent
}

// forProvider returns what a provider that speaks chat gets back: only what it sent itself. Many such providers refuse
// unknown members.
func (s *state) forProvider(provider, thought string) (string, *state) {
	switch {
	case s.Provider != provider:
		return "", &state{}
	case !s.ReasoningContent:
		return "", s
	default:
		return thought, s
	}
}

// encode returns the encrypted_content; nil if the state is empty.
func (s *state) encode() (*string, error) {
	if s.empty() {
		return nil, nil //nolint:nilnil // an empty state is valid
	}
	text, err := json.Marshal(s, encoding, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	kept := statePrefix + base64.RawURLEncoding.EncodeToString(text)
	return &kept, nil
}

var errBadState = errors.New("is not as it was given")

// decodeState reads what encode has written. encrypted_content of others yields an empty state.
func decodeState(kept string) (*state, error) {
	s := &state{}
	encoded, ours := strings.CutPrefix(kept, statePrefix)
	if !ours {
		return s, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || json.Unmarshal(text, s, lenient) != nil {
		return nil, errBadState
	}
	return s, nil
}

// appendThoughts adds deltas of thoughts. Deltas of one index and type belong to one thought.
func appendThoughts(thoughts, pieces []chat.Thought) []chat.Thought {
next:
	for _, piece := range pieces {
		for i := range thoughts {
			t := &thoughts[i]
			if piece.Index != nil && t.Index != nil && *piece.Index == *t.Index && piece.Type == t.Type {
				t.Append(piece)
				continue next
			}
		}
		thoughts = append(thoughts, piece)
	}
	return thoughts
}

// withoutIndexes removes the indexes of complete thoughts.
func withoutIndexes(thoughts []chat.Thought) []chat.Thought {
	for i := range thoughts {
		thoughts[i].Index = nil
	}
	return thoughts
}

// sign stores the signature of a tool call, if it has one.
func (s *state) sign(call string, e *chat.ExtraContent) {
	signature := e.Signature()
	if signature == "" {
		return
	}
	if s.Calls == nil {
		s.Calls = map[string]string{}
	}
	s.Calls[call] = signature
}
