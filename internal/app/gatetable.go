package app

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// gateWidth is the width of a terminal, in characters.
const gateWidth = 80

// table returns the checks as text for a terminal or a pipeline's log.
func (v *gateVerdict) table(evalID string) string {
	var b strings.Builder
	title := printable(evalID)
	if v.Candidate != "" {
		title += ": " + printable(v.Candidate)
	}
	writeWrapped(&b, "", title)
	if len(v.Checks) > 0 {
		fmt.Fprintf(&b, "\n%-20s %11s %11s %11s  %s\n", "CHECK", "OBSERVED", "BOUND", "THRESHOLD", "RESULT")
	}
	for i := range v.Checks {
		c := &v.Checks[i]
		result := "refused"
		if c.Pass {
			result = "pass"
		}
		fmt.Fprintf(&b, "%-20s %11s %11s %11s  %s\n", cut(printable(c.Check), 20),
			number(c.Observed), number(c.Bound), number(c.Threshold), result)
		writeWrapped(&b, "  ", printable(c.Reason))
	}
	if v.Pass {
		b.WriteString("\nThe gate passes.\n")
	} else {
		b.WriteString("\nThe gate refuses.\n")
	}
	return b.String()
}

func number(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'g', 4, 64)
}

// printable replaces what could control a terminal. The server's texts may quote others'.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// writeWrapped writes a text in lines of at most gateWidth characters, each with an indent. A longer word is broken.
func writeWrapped(b *strings.Builder, indent, text string) {
	room := gateWidth - len(indent)
	line := []rune{}
	flush := func() {
		if len(line) > 0 {
			b.WriteString(indent + string(line) + "\n")
		}
		line = line[:0]
	}
	for word := range strings.FieldsSeq(text) {
		rest := []rune(word)
		if len(line) > 0 && len(line)+1+len(rest) > room {
			flush()
		}
		for ; len(rest) > room; rest = rest[room:] {
			b.WriteString(indent + string(rest[:room]) + "\n")
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		line = append(line, rest...)
	}
	flush()
}
