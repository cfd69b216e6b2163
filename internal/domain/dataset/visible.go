package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// visible is the text by which examples are alike: all that is said in an example but for the system prompt, which the examples
// of a task share. Tool calls and their results count, the ids that tie them together do not. It depends on the line
// alone, so that equal lines are alike.
func visible(line []byte) (string, error) {
	var example struct {
		Messages []jsontext.Value `json:"messages"`
	}
	if err := json.Unmarshal(line, &example, lenient); err != nil {
		return "", fmt.Errorf("read an example: %w", err)
	}
	var all strings.Builder
	for _, message := range example.Messages {
		var head struct {
			Role jsontext.Value `json:"role"`
		}
		if err := json.Unmarshal(message, &head, lenient); err != nil {
			return "", fmt.Errorf("read a message: %w", err)
		}
		if role := said(head.Role); role == "system" || role == "developer" {
			continue
		}
		if err := utter(&all, message); err != nil {
			return "", fmt.Errorf("read a message: %w", err)
		}
	}
	return all.String(), nil
}

// mute are the members that say nothing to a model.
var mute = map[string]bool{"role": true, "type": true, "id": true, "tool_call_id": true}

// utter adds what a message says, a line for each string.
func utter(to *strings.Builder, message jsontext.Value) error {
	d := jsontext.NewDecoder(bytes.NewReader(message), lenient)
	member := ""
	for {
		token, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if token.Kind() != '"' {
			continue
		}
		if in, length := d.StackIndex(d.StackDepth()); in == '{' && length%2 == 1 {
			member = token.String()
		} else if !mute[member] {
			to.WriteString(token.String())
			to.WriteByte('\n')
		}
	}
}
