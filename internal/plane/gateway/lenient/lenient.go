// Package lenient reads JSON of callers and providers as far as it can be read. It never refuses what is merely
// unusual: the provider, or the client, is the one to validate it.
package lenient

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/text/scan"
)

// Decode decodes a JSON value. Names match in any case, and duplicate names and invalid UTF-8 are accepted.
func Decode(value []byte, into any) error {
	return json.Unmarshal(
		value, into, json.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true),
	)
}

// PlainString returns the text of a JSON string without escapes, as a part of value. It returns false for any other
// value. It does not check that the text is UTF-8.
func PlainString(value []byte) ([]byte, bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	inner := value[1 : len(value)-1]
	for _, c := range inner {
		if c == '\\' || c < ' ' {
			return nil, false
		}
	}
	return inner, true
}

// Strings calls each with every string of a JSON value that is not a member's name.
func Strings(value []byte, each func(string)) {
	decoder := jsontext.NewDecoder(
		bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	)
	for {
		kind, length := decoder.StackIndex(decoder.StackDepth())
		name := kind == '{' && length%2 == 0
		t, err := decoder.ReadToken()
		if err != nil {
			return // the end, or not JSON: the provider validates it
		}
		if t.Kind() == '"' && !name {
			each(t.String())
		}
	}
}

// A Range is a part of a text, from the byte From up to the byte To. The zero Range is none.
type Range struct{ From, To int }

// Member returns the index of an object's member, and whether it has one of that name.
func Member(members []scan.Member, name string) (int, bool) {
	for i := range members {
		if members[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// Cut returns the part of an object that holds a member and the comma beside it. The object must have another member
// too.
func Cut(members []scan.Member, i int) Range {
	if i > 0 {
		return Range{members[i-1].End, members[i].End}
	}
	return Range{members[0].Start, members[1].Start}
}
