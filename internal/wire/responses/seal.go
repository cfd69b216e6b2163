package responses

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/wire/chat"
)

// What is sealed goes to the caller as a reasoning item's encrypted content and comes back with the conversation: what a
// provider wants to see again, and the Responses API has no member for.
type sealed struct {
	Thoughts  []chat.Thought    `json:"thoughts,omitempty"`
	Calls     map[string]string `json:"calls,omitempty"`     // Google's signatures of tool calls, by the id of the call
	Signature string            `json:"signature,omitempty"` // and of the message

	From    string `json:"from,omitempty"`             // the provider, if its wire is OpenAI's: of those each has ways of its own
	Content bool   `json:"reasoning_content,omitzero"` // it called the text so, and some want it back
}

// seal begins what we have sealed, and tells it from what others have.
const seal = "sovereign1."

func (s *sealed) empty() bool {
	return len(s.Thoughts) == 0 && len(s.Calls) == 0 && s.Signature == "" && !s.Content
}

// of is what a provider that speaks OpenAI's wire is given of a thought: what it gave itself, as it gave it. Many refuse
// what they do not know, and the text is for people.
func (s *sealed) of(provider, thought string) (string, *sealed) {
	switch {
	case s.From != provider:
		return "", &sealed{}
	case !s.Content:
		return "", s
	default:
		return thought, s
	}
}

// encode is the text that the caller keeps; nil when there is nothing to keep.
func (s *sealed) encode() (*string, error) {
	if s.empty() {
		return nil, nil //nolint:nilnil // nothing to keep is no error
	}
	text, err := json.Marshal(s, written, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	kept := seal + base64.RawURLEncoding.EncodeToString(text)
	return &kept, nil
}

var errBroken = errors.New("is not as it was given")

// unseal reads what encode has written. What others have sealed is for them alone.
func unseal(kept string) (*sealed, error) {
	s := &sealed{}
	encoded, ours := strings.CutPrefix(kept, seal)
	if !ours {
		return s, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || json.Unmarshal(text, s, lenient) != nil {
		return nil, errBroken
	}
	return s, nil
}

// think adds pieces of thoughts to thoughts. Those of one index are one thought.
func think(thoughts, pieces []chat.Thought) []chat.Thought {
next:
	for _, piece := range pieces {
		for i := range thoughts {
			t := &thoughts[i]
			if piece.Index != nil && t.Index != nil && *piece.Index == *t.Index && piece.Type == t.Type {
				t.Grow(piece)
				continue next
			}
		}
		thoughts = append(thoughts, piece)
	}
	return thoughts
}

// whole are thoughts that no piece will be added to.
func whole(thoughts []chat.Thought) []chat.Thought {
	for i := range thoughts {
		thoughts[i].Index = nil
	}
	return thoughts
}

// sign keeps a tool call's signature, if it has one.
func (s *sealed) sign(call string, e *chat.Extra) {
	signature := e.Signature()
	if signature == "" {
		return
	}
	if s.Calls == nil {
		s.Calls = map[string]string{}
	}
	s.Calls[call] = signature
}
