package capture

import (
	"encoding/binary"
	"errors"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
)

// A Row is a log row, with credentials redacted, on its way to the database.
type Row struct {
	ID           string
	Workspace    tenant.ID
	Key          tenant.KeyID
	Request      string
	At           clock.Time
	Expires      clock.Time
	Model        string
	Requested    string
	Alias        string
	Provider     string
	FallbackFrom string
	Tag          string
	Trace        string
	Exact        string // the id of the exact system prompt
	Finish       string
	Stream       bool
	Cached       bool
	Prompt       int64 // tokens
	Completion   int64
	Cost         money.Nano
	Latency      int64 // microseconds
	First        int64 // microseconds until the first content
	Chain        []byte
	Messages     []byte
	Tools        []byte
	Response     []byte
}

// The formats of records: the first byte of an encoded one. A spool may hold records of the previous release.
const (
	rowFormat     = 1
	oldDrawFormat = 2 // without a question
	drawFormat    = 3
)

// texts, bodies and numbers list the fields in the order in which they are encoded.
func (r *Row) texts() [13]*string {
	return [...]*string{
		&r.ID, (*string)(&r.Workspace), (*string)(&r.Key), &r.Request, &r.Model, &r.Requested, &r.Alias, &r.Provider,
		&r.FallbackFrom,
		&r.Tag, &r.Trace, &r.Exact, &r.Finish,
	}
}

func (r *Row) bodies() [4]*[]byte {
	return [...]*[]byte{&r.Chain, &r.Messages, &r.Tools, &r.Response}
}

func (r *Row) numbers() [7]*int64 {
	return [...]*int64{
		(*int64)(&r.At), (*int64)(&r.Expires), &r.Prompt, &r.Completion, (*int64)(&r.Cost), &r.Latency, &r.First,
	}
}

// Append appends the encoded row to to.
func (r *Row) Append(to []byte) []byte {
	numbers, texts := r.numbers(), r.texts()
	to = appendFields(append(to, rowFormat, flag(r.Stream)|flag(r.Cached)<<1), numbers[:], texts[:])
	for _, body := range r.bodies() {
		to = append(binary.AppendUvarint(to, uint64(len(*body))), *body...)
	}
	return to
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendFields appends numbers and texts to to.
func appendFields(to []byte, numbers []*int64, texts []*string) []byte {
	for _, n := range numbers {
		to = binary.AppendVarint(to, *n)
	}
	for _, text := range texts {
		to = append(binary.AppendUvarint(to, uint64(len(*text))), *text...)
	}
	return to
}

var (
	errUnknownFormat = errors.New("a logged record is of a release that this one does not know")
	errShort         = errors.New("a logged record is cut short")
	errTrailing      = errors.New("a logged record is longer than it should be")
)

// Parse decodes a row. The row's bodies alias from.
func Parse(from []byte) (*Row, error) {
	if len(from) < 2 || from[0] != rowFormat {
		return nil, errUnknownFormat
	}
	r := &Row{Stream: from[1]&1 != 0, Cached: from[1]&2 != 0}
	numbers, texts := r.numbers(), r.texts()
	from, err := parseFields(from[2:], numbers[:], texts[:])
	if err != nil {
		return nil, err
	}
	for _, into := range r.bodies() {
		body, rest, ok := lengthPrefixed(from)
		if !ok {
			return nil, errShort
		}
		*into, from = body, rest
	}
	if len(from) > 0 {
		return nil, errTrailing
	}
	return r, nil
}

// parseFields decodes what appendFields appended, and returns the rest.
func parseFields(from []byte, numbers []*int64, texts []*string) (rest []byte, err error) {
	for _, into := range numbers {
		value, n := binary.Varint(from)
		if n <= 0 {
			return nil, errShort
		}
		*into, from = value, from[n:]
	}
	for _, into := range texts {
		text, rest, ok := lengthPrefixed(from)
		if !ok {
			return nil, errShort
		}
		*into, from = string(text), rest
	}
	return from, nil
}

func lengthPrefixed(from []byte) (text, rest []byte, ok bool) {
	size, n := binary.Uvarint(from)
	if n <= 0 || size > uint64(len(from)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return from[n:end:end], from[end:], true
}
