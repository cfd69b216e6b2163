package responses

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrorAnswer implements upstream.Dialect. Errors have the same shape in both APIs.
func (b Dialect) ErrorAnswer(status int, body []byte) (int, []byte) { return status, body }

// errorEvent is the event of an error.
type errorEvent struct {
	Type     string  `json:"type"`
	Sequence int     `json:"sequence_number"`
	Code     *string `json:"code"`
	Message  string  `json:"message"`
	Param    *string `json:"param"`
}

// errorEvent sends an error event. The code of a chat error may be a number.
func (s *builder) errorEvent(value jsontext.Value) error {
	var decoded struct {
		Message string         `json:"message"`
		Code    jsontext.Value `json:"code"`
		Param   jsontext.Value `json:"param"`
	}
	if value.Kind() == '"' {
		decoded.Message, _ = scalarText(value)
	} else if err := json.Unmarshal(value, &decoded, lenient); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	e := errorEvent{Type: "error", Sequence: s.sequence, Message: decoded.Message}
	if code, ok := scalarText(decoded.Code); ok {
		e.Code = &code
	}
	if param, ok := scalarText(decoded.Param); ok {
		e.Param = &param
	}
	return s.write(e.Type, &e)
}
