package evalendpoint

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/text/redact"
	"sovereign/internal/wire/chat"
)

// read checks that an answer is a chat completion, and returns it without the key.
func (to *target) read(body []byte) ([]byte, error) {
	var found struct {
		chat.Answer
		Error jsontext.Value `json:"error"`
	}
	err := json.Unmarshal(body, &found)
	switch {
	case len(found.Error) > 0 && found.Error.Kind() != 'n':
		meant := cmp.Or(answer.ReadError(found.Error, strings.Clone).Status, http.StatusBadGateway)
		return nil, to.refused(meant, "answered with an error", "", found.Error)
	case err != nil, len(found.Choices) == 0:
		return nil, to.final("answers with something else than a chat completion")
	}
	for _, choice := range found.Choices {
		if choice.Message.Role != chat.RoleAssistant {
			return nil, to.final("answers with a choice that is no message of the assistant")
		}
	}
	clean, err := withoutKey(body, to.key.Reveal())
	if err != nil {
		return nil, to.final("answers with something else than a chat completion")
	}
	return clean, nil
}

// withoutKey replaces the key in the strings of a JSON text, however they are escaped. Parts of the key stay: they may
// be words, and an answer is judged as it is.
func withoutKey(body []byte, key string) ([]byte, error) {
	if key == "" || !bytes.Contains(body, []byte(key)) && bytes.IndexByte(body, '\\') < 0 {
		return body, nil
	}
	var clean bytes.Buffer
	from, to := jsontext.NewDecoder(bytes.NewReader(body)), jsontext.NewEncoder(&clean)
	for {
		token, err := from.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return bytes.TrimSpace(clean.Bytes()), nil
		case err != nil:
			return nil, err
		}
		if token.Kind() == '"' {
			token = jsontext.String(strings.ReplaceAll(token.String(), key, redact.Mark))
		}
		if err := to.WriteToken(token); err != nil {
			return nil, err
		}
	}
}
