package finetune

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
)

// A Format is the shape of the lines of a training file.
type Format string

// The formats.
const (
	Chat             Format = "chat"              // {"messages": […]}, of which the last is the assistant's
	PromptCompletion Format = "prompt_completion" // {"prompt", "completion"}: texts, or messages
	Preference       Format = "preference"        // {"prompt", "chosen", "rejected"}: texts, or messages
)

// Bounds of a training file.
const (
	maxFile   = 512 << 20
	maxLine   = 4 << 20
	maxRows   = 10_000_000
	maxFaults = 20 // that a refusal names
)

// A Summary is what a training file holds.
type Summary struct {
	Format Format
	Rows   int64
	Bytes  int64
}

// readLines reads the lines of a training file, and refuses those that are no examples of one format, by their numbers.
// The first line decides the format.
func readLines(from io.Reader) (Summary, error) {
	var sum Summary
	var faults []string
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	blank := int64(0) // the first blank line since the last example
	n := int64(0)
	for lines.Scan() {
		n++
		line := lines.Bytes()
		sum.Bytes += int64(len(line)) + 1
		if len(bytes.TrimSpace(line)) == 0 {
			if blank == 0 {
				blank = n
			}
			continue
		}
		if blank != 0 {
			faults = append(faults, fmt.Sprintf("line %d: is blank, and more lines follow", blank))
			blank = 0
		}
		format, err := readLine(line)
		switch {
		case err != nil:
			faults = append(faults, fmt.Sprintf("line %d: %s", n, err))
		case sum.Format == "":
			sum.Format = format
		case format != sum.Format:
			faults = append(faults, fmt.Sprintf("line %d: is %s, and the lines before are %s", n, format, sum.Format))
		}
		if sum.Rows++; sum.Rows > maxRows {
			return sum, refused(fmt.Sprintf("the file has more than %d lines", maxRows))
		}
		if len(faults) >= maxFaults {
			faults = append(faults, "and perhaps more")
			break
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		faults = append(faults, fmt.Sprintf("line %d: is longer than %d bytes", n+1, maxLine))
	case err != nil:
		return sum, err
	}
	switch {
	case len(faults) > 0:
		return sum, refused(strings.Join(faults, "; "))
	case sum.Rows == 0:
		return sum, refused("the file has no lines")
	}
	return sum, nil
}

func refused(message string) error { return fault.InvalidParameter.New("%s", message) }

// A message is a turn of a conversation, as far as it is checked.
type message struct {
	Role      string         `json:"role"`
	Content   jsontext.Value `json:"content"`
	ToolCalls jsontext.Value `json:"tool_calls"`
}

// readLine returns the format of one example.
func readLine(line []byte) (Format, error) {
	if !utf8.Valid(line) {
		return "", errors.New("is not UTF-8")
	}
	var example struct {
		Messages   *[]message     `json:"messages"`
		Prompt     jsontext.Value `json:"prompt"`
		Completion jsontext.Value `json:"completion"`
		Chosen     jsontext.Value `json:"chosen"`
		Rejected   jsontext.Value `json:"rejected"`
	}
	if err := json.Unmarshal(line, &example); err != nil {
		return "", errors.New("is not a JSON object with the members of an example")
	}
	switch {
	case example.Messages != nil:
		return Chat, checkMessages("messages", *example.Messages, true)
	case example.Chosen != nil || example.Rejected != nil:
		return Preference, firstError(
			checkText("prompt", example.Prompt, false), checkText("chosen", example.Chosen, true),
			checkText("rejected", example.Rejected, true))
	case example.Prompt != nil || example.Completion != nil:
		return PromptCompletion, firstError(
			checkText("prompt", example.Prompt, false), checkText("completion", example.Completion, true))
	}
	return "", errors.New("has neither messages, nor prompt and completion, nor prompt, chosen and rejected")
}

func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkText checks a member that is a text or messages. An answer must not be empty.
func checkText(name string, given jsontext.Value, answer bool) error {
	switch given.Kind() {
	case '"':
		var text string
		if err := json.Unmarshal(given, &text); err != nil || answer && text == "" {
			return fmt.Errorf("%s must be a text that is not empty", name)
		}
		return nil
	case '[':
		var all []message
		if err := json.Unmarshal(given, &all); err != nil {
			return fmt.Errorf("%s must be messages with a role and content", name)
		}
		return checkMessages(name, all, answer)
	default:
		return fmt.Errorf("%s is missing, or neither a text nor messages", name)
	}
}

// roles are those of messages.
var roles = map[string]bool{"system": true, "developer": true, "user": true, "assistant": true, "tool": true}

// checkMessages checks a conversation. One that is learned ends with the assistant.
func checkMessages(name string, all []message, answer bool) error {
	if len(all) == 0 {
		return fmt.Errorf("%s is empty", name)
	}
	for i, m := range all {
		switch {
		case !roles[m.Role]:
			return fmt.Errorf(
				"%s[%d].role is %q, and must be system, developer, user, assistant or tool", name, i, m.Role,
			)
		case m.Content.Kind() != '"' && m.Content.Kind() != '[' && m.ToolCalls == nil:
			return fmt.Errorf("%s[%d] has neither content nor tool_calls", name, i)
		}
	}
	if last := all[len(all)-1]; answer && last.Role != "assistant" {
		return fmt.Errorf("%s must end with a message of the role assistant, and ends with %s", name, last.Role)
	}
	return nil
}
