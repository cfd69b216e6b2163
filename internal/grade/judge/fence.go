package judge

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// fenced puts quoted text between two boundary lines that carry its mark.
func fenced(place int, quoted string, all []string) string {
	m := mark(place, quoted, all)
	return "BEGIN " + m + "\n" + quoted + "END " + m
}

// mark returns a mark that occurs in none of the texts of a question. It depends on what it marks and on its place, so
// that the same question always has the same words. A text that contains its own mark gets another one.
func mark(place int, quoted string, all []string) string {
	digest := sha256.Sum256([]byte(quoted))
	for try := uint64(0); ; try++ {
		seed := binary.LittleEndian.AppendUint64(digest[:], uint64(place))
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(seed, try))
		m := "data-" + hex.EncodeToString(sum[:16])
		if !slices.ContainsFunc(all, func(text string) bool { return strings.Contains(text, m) }) {
			return m
		}
	}
}

// bar begins every quoted line, and no other.
const bar = "| "

// tokens begin or end turns in chat templates. A server that does not distinguish them from text would let a text open
// a turn of its own.
var tokens = []string{
	"<|", "<｜", "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<<SYS>>", "<</SYS>>",
	"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
	"[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<think>", "</think>",
}

// defused makes a text safe to quote: line breaks become line feeds, invisible characters are escaped, and the control
// tokens of chat templates are broken by a backslash.
func defused(text string) string {
	if !strings.ContainsFunc(text, suspicious) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + len(text)/16)
	for at, r := range text {
		switch {
		case r == '\r' && strings.HasPrefix(text[at+1:], "\n"):
		case slices.Contains(breaks, r):
			b.WriteByte('\n')
		case invisible(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		case (r == '<' || r == '[') &&
			slices.ContainsFunc(tokens, func(token string) bool { return strings.HasPrefix(text[at:], token) }):
			b.WriteRune(r)
			b.WriteByte('\\')
		default:
			b.WriteRune(r) // one that is none is the replacement character
		}
	}
	return b.String()
}

// suspicious reports whether defused has to look at a character.
func suspicious(r rune) bool {
	return r == '<' || r == '[' || slices.Contains(breaks, r) || invisible(r)
}

// breaks are characters that some software takes for the end of a line, besides the line feed.
var breaks = []rune{'\r', '\v', '\f', '\u0085', '\u2028', '\u2029'}

// invisible reports whether models read a character that people do not see: control characters, those that change the
// direction of writing, those without a width, tags, and variation selectors, in which whole sentences can be hidden.
// Joiners, and the sixteen selectors that emoji are written with, are allowed.
func invisible(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || r == 0x200B || r == 0x200E || r == 0x200F || r >= 0x202A &&
		r <= 0x202E ||
		r >= 0x2060 && r <= 0x2069 || r == 0xFEFF || r >= 0xE0000 && r <= 0xE01EF
}

// name writes a text of the data for a line that is not quoted: in quotation marks, short, and without a line break.
func name(text string) string {
	const most = 64
	quoted, err := jsontext.AppendQuote(nil, clip(defused(text), most))
	if err != nil { // defused has made text of it
		return `"?"`
	}
	return string(quoted)
}

// clip cuts s to at most limit characters. A cut text ends with an ellipsis.
func clip(s string, limit int) string {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	end := 0
	for range limit - 1 {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return s[:end] + "…"
}
