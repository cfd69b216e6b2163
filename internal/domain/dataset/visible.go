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

// visibleText is the text by which examples are compared: everything in an example except the system prompt, which the
// examples of a task share. Tool calls and their results count, their ids do not. It depends on the line alone, so that
// equal lines are alike.
func visibleText(line []byte) (string, error) {
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
		if role := textOf(head.Role); role == "system" || role == "developer" {
			continue
		}
		if err := appendStrings(&all, message); err != nil {
			return "", fmt.Errorf("read a message: %w", err)
		}
	}
	return all.String(), nil
}

// silentMembers are the members of a message whose strings are not content.
var silentMembers = map[string]bool{"role": true, "type": true, "id": true, "tool_call_id": true}

// appendStrings appends the content of a message, a line for each string.
func appendStrings(to *strings.Builder, message jsontext.Value) error {
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
		} else if !silentMembers[member] {
			to.WriteString(token.String())
			to.WriteByte('\n')
		}
	}
}
