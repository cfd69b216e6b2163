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

// fenced is quoted text between two lines that carry its mark.
func fenced(place int, quoted string, all []string) string {
	m := mark(place, quoted, all)
	return "BEGIN " + m + "\n" + quoted + "END " + m
}

// mark is one that is nowhere in all the texts of a question. It follows from what it marks and where that stands, so
// that the same question is always asked in the same words; who could make a text that holds its own digest gets another.
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

// tokens begin or end turns in the templates of models' chats. Servers that do not tell them from text would let a text
// open a turn of its own.
var tokens = []string{
	"<|", "<｜", "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<<SYS>>", "<</SYS>>",
	"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
	"[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<think>", "</think>",
}

// defused is text as it may be quoted: what breaks lines is a line feed, what cannot be seen is written out, and the
// control tokens of templates are broken by a backslash.
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
		case (r == '<' || r == '[') && slices.ContainsFunc(tokens, func(token string) bool { return strings.HasPrefix(text[at:], token) }):
			b.WriteRune(r)
			b.WriteByte('\\')
		default:
			b.WriteRune(r) // one that is none is the replacement character
		}
	}
	return b.String()
}

// suspicious are the characters that defused has to look at.
func suspicious(r rune) bool {
	return r == '<' || r == '[' || slices.Contains(breaks, r) || invisible(r)
}

// breaks end a line for somebody, besides the line feed.
var breaks = []rune{'\r', '\v', '\f', '\u0085', '\u2028', '\u2029'}

// invisible are characters that people do not see and models read: control characters, those that turn the direction of
// writing, those without a width, and tags and selectors of variants, in which whole sentences can be hidden. Those that join letters,
// and the sixteen selectors that pictures are written with, belong to what people write.
func invisible(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || r == 0x200B || r == 0x200E || r == 0x200F || r >= 0x202A && r <= 0x202E ||
		r >= 0x2060 && r <= 0x2069 || r == 0xFEFF || r >= 0xE0000 && r <= 0xE01EF
}

// name is a text of the data as it may stand in a line that is not quoted: in quotation marks, short, and without a break.
func name(text string) string {
	const most = 64
	quoted, err := jsontext.AppendQuote(nil, clip(defused(text), most))
	if err != nil { // defused has made text of it
		return `"?"`
	}
	return string(quoted)
}
