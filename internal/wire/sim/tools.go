package sim

import (
	"slices"
	"strings"
	"unicode"
)

// toolsToCall returns the tools that the answer calls: the one that tool_choice names, or those that the user's text
// names, or the one that fits it best, or the first one if a call is required. After the result of a tool that was
// called for the same text it returns none.
func (q *chatRequest) toolsToCall() []int {
	mode := q.ToolChoice.mode
	if mode == none || len(q.Tools) == 0 || q.hasResult() {
		return nil
	}
	if q.ToolChoice.name != "" {
		return []int{q.toolIndex(q.ToolChoice.name)}
	}
	var all []int
	text := normalizeWords(q.userText())
	for i, t := range q.Tools {
		if strings.Contains(text, normalizeWords(t.Function.Name)) {
			all = append(all, i)
		}
	}
	if best := q.fittingTool(); len(all) == 0 && best >= 0 {
		all = []int{best}
	}
	if len(all) == 0 && mode == required {
		all = []int{0}
	}
	if len(all) > 1 && q.ParallelToolCalls != nil && !*q.ParallelToolCalls {
		all = all[:1]
	}
	return all
}

// hasResult reports whether a tool's result follows the last text of the user.
func (q *chatRequest) hasResult() bool {
	for _, m := range slices.Backward(q.Messages) {
		if m.Role == "tool" || m.Role == "user" {
			return m.Role == "tool"
		}
	}
	return false
}

// fittingTool returns the tool that fits the user's text best, or -1. A tool fits a text that has a word of its name,
// or two of its description. A word of the name counts as much as two; of tools that fit equally well the first is the
// best.
func (q *chatRequest) fittingTool() int {
	const enough = 2
	best, most := -1, enough-1
	asked := topicWords(q.userText())
	for i, t := range q.Tools {
		named := topicWords(splitCamelCase(t.Function.Name))
		fit := enough * common(asked, named)
		if t.Function.Description != nil {
			fit += common(asked, topicWords(*t.Function.Description))
		}
		if fit > most {
			best, most = i, fit
		}
	}
	return best
}

// common counts the words that two texts share.
func common(a, b map[string]bool) (n int) {
	for word := range a {
		if b[word] {
			n++
		}
	}
	return n
}

// weakWords say nothing about what a text or a tool is about.
var weakWords = wordsOf("all and any are can could did does for from get has have how into its make may please run " +
	"set should show tell that the them then there these this tool use user uses using want what when where which who " +
	"will with would you your")

// topicWords returns the words that say what a text is about, in the singular: those of three letters and more that
// are not weak.
func topicWords(text string) map[string]bool {
	topics := map[string]bool{}
	for word := range wordsOf(text) {
		if len(word) >= 3 && !weakWords[word] {
			topics[strings.TrimSuffix(word, "s")] = true
		}
	}
	return topics
}

// splitCamelCase puts a space before every capital letter that follows a small one.
func splitCamelCase(name string) string {
	var b strings.Builder
	before := ' '
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

// normalizeWords returns the lower-case words of s, separated and surrounded by spaces: get_weather is found in "Get
// weather, please", and get is not found in "forget".
func normalizeWords(s string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	return " " + strings.Join(words, " ") + " "
}
