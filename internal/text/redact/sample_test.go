package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// quoted returns text as a JSON string.
func quoted(text string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// unquoted decodes a JSON string. It returns the error text when doc is not one.
func unquoted(doc string) string {
	var text string
	if err := json.Unmarshal([]byte(doc), &text); err != nil {
		return err.Error()
	}
	return text
}

// escaped returns text as a JSON string in which the chosen characters are \u escapes.
func escaped(text string, which func(i int) bool) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case which(i):
			fmt.Fprintf(&out, `\u%04x`, c)
		case c >= ' ' && c < 0x7f && c != '"' && c != '\\':
			out.WriteByte(c)
		default:
			one := quoted(text[i : i+1])
			out.WriteString(one[1 : len(one)-1])
		}
	}
	out.WriteByte('"')
	return out.String()
}
