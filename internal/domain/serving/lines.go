package serving

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"sovereign/internal/text/redact"
)

// Bounds of what is shown of an engine's output.
const (
	MaxLines  = 100
	maxColumn = 1000
)

// escapes are the sequences by which a program colours a terminal.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])`)

// LastLines returns the last lines of what an engine wrote, fit for people: without control characters and credentials.
// Cut says that the output began before.
func LastLines(output []byte, cut bool) []string {
	if cut { // its beginning may be the rest of a credential
		if at := bytes.IndexAny(output, "\n \t"); at >= 0 {
			output = output[at+1:]
		} else {
			output = nil
		}
	}
	text := escapes.ReplaceAllString(strings.ToValidUTF8(string(output), "�"), "")
	var lines []string
	for line := range strings.SplitSeq(redact.String(text), "\n") {
		line = strings.Map(func(r rune) rune {
			switch {
			case r == '\t':
				return ' '
			case unicode.IsControl(r):
				return -1
			}
			return r
		}, line)
		if strings.TrimSpace(line) != "" {
			lines = append(lines, shorten(line))
		}
	}
	return lines[max(0, len(lines)-MaxLines):]
}

// shorten cuts a long line.
func shorten(line string) string {
	if len(line) <= maxColumn {
		return line
	}
	end := maxColumn
	for end > 0 && !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}
