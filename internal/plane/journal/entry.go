package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
)

// A Kind says what an entry records.
type Kind byte

// The kinds.
const (
	Opened     Kind = 1 // the request is about to deliver its first content; this is its charge if the process dies
	Progressed Kind = 2 // the request has delivered more; this is its charge if it ends now
	Settled    Kind = 3 // the request has ended; this is its final charge
	Probe      Kind = 4 // no content: written to test whether the journal can be written
)

// A Charge is what one request used, and what that costs.
type Charge struct {
	Request   string
	Workspace tenant.ID
	Key       tenant.KeyID
	At        clock.Time
	Route     string
	Model     string // the one that answered
	Requested string // as the caller named it
	Alias     string // set when the requested name was an alias
	Provider  string
	Outcome   string
	Counted   bool // tokens were counted by us: the provider reported none
	Usage     live.Usage
	Price     live.Rates
	Own       bool       // the request used the workspace's own key
	Cost      money.Nano // the usage at the price
	Charged   money.Nano // the part charged to the wallet; the rest is the operator's overage
	Hold      string     // the named hold that pays; empty for the wallet
	Tag       string     // of X-Service-Tag
}

// An Entry is one record of the journal. A Progressed entry stores only the request id and the amounts.
type Entry struct {
	Kind Kind
	Charge
}

// headerSize is the size of a record's header: the payload's length and its checksum.
const (
	headerSize = 8
	maxPayload = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn reports that the data does not begin with a complete record.
var errTorn = errors.New("no whole record")

// appendEntry encodes e with its header.
func appendEntry(to []byte, e *Entry) []byte {
	start := len(to)
	to = append(to, 0, 0, 0, 0, 0, 0, 0, 0, byte(e.Kind))
	to = appendText(to, e.Request)
	for _, amount := range e.amounts() {
		to = binary.AppendVarint(to, *amount)
	}
	if e.whole() {
		to = append(to, flag(e.Counted))
		for _, text := range e.texts() {
			to = appendText(to, *text)
		}
		to = appendText(appendText(to, string(e.Workspace)), string(e.Key))
		for _, rate := range e.rates() {
			to = binary.AppendVarint(to, *rate)
		}
		to = append(to, flag(e.Own))
		for _, rate := range e.laterRates() {
			to = binary.AppendVarint(to, *rate)
		}
	}
	for _, amount := range e.laterAmounts() {
		to = binary.AppendVarint(to, *amount)
	}
	if e.hasLatest() {
		to = binary.AppendVarint(to, e.Usage.GPUSeconds)
		if e.whole() {
			to = appendText(binary.AppendVarint(to, int64(e.Price.GPUSecond)), e.Hold)
		}
	}
	if e.hasTag() {
		to = appendText(to, e.Tag)
	}
	payload := to[start+headerSize:]
	binary.LittleEndian.PutUint32(to[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(to[start+4:], crc32.Checksum(payload, castagnoli))
	return to
}

// amounts, texts and rates list the fields of each type, in the order of the file format.
func (e *Entry) amounts() []*int64 {
	return []*int64{
		(*int64)(&e.At), &e.Usage.Input, &e.Usage.Cached, &e.Usage.Output, &e.Usage.Reasoning,
		(*int64)(&e.Cost), (*int64)(&e.Charged),
	}
}

func (e *Entry) texts() []*string {
	return []*string{&e.Route, &e.Model, &e.Requested, &e.Alias, &e.Provider, &e.Outcome}
}

func (e *Entry) rates() []*int64 {
	return []*int64{(*int64)(&e.Price.Input), (*int64)(&e.Price.CachedInput), (*int64)(&e.Price.Output)}
}

// laterAmounts and laterRates were added by a later release. A record of an earlier release ends before them: its
// amounts are zero then, and its rates those of live.Flat.
func (e *Entry) laterAmounts() []*int64 {
	return []*int64{&e.Usage.Written, &e.Usage.AudioInput, &e.Usage.AudioOutput, &e.Usage.Searches}
}

func (e *Entry) laterRates() []*int64 {
	p := &e.Price
	return []*int64{
		(*int64)(&p.WrittenInput), (*int64)(&p.AudioInput), (*int64)(&p.Reasoning), (*int64)(&p.AudioOutput),
		(*int64)(&p.Search),
	}
}

// hasLatest reports whether e has a value that a later release added: the seconds of a GPU, their rate, the named
// hold, or the tag that follows them. A record without one ends before them, as in an earlier release.
func (e *Entry) hasLatest() bool {
	return e.Usage.GPUSeconds != 0 || e.whole() && (e.Hold != "" || e.Price.GPUSecond != 0) || e.hasTag()
}

// hasTag reports whether the record of e ends with a tag, which the latest release added.
func (e *Entry) hasTag() bool { return e.whole() && e.Tag != "" }

// whole reports whether the record of e stores more than the request id and the amounts.
func (e *Entry) whole() bool { return e.Kind == Opened || e.Kind == Settled }

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// decodeEntry decodes the first record of data and returns its size. texts interns the strings: most repeat.
func decodeEntry(data []byte, texts map[string]string) (e Entry, size int, err error) {
	if len(data) < headerSize {
		return e, 0, errTorn
	}
	length := binary.LittleEndian.Uint32(data)
	if length == 0 || length > maxPayload || int(length) > len(data)-headerSize {
		return e, 0, errTorn
	}
	payload := data[headerSize : headerSize+int(length)]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(data[4:]) {
		return e, 0, errTorn
	}
	r := reader{rest: payload}
	e.Kind = Kind(r.byte())
	if e.Kind < Opened || e.Kind > Probe {
		return e, 0, fmt.Errorf("a record of unknown kind %d: a newer release wrote it", e.Kind)
	}
	e.Request = r.text()
	for _, amount := range e.amounts() {
		*amount = r.varint()
	}
	if e.whole() {
		e.Counted = r.byte() == 1
		for _, text := range e.texts() {
			*text = r.interned(texts)
		}
		e.Workspace, e.Key = tenant.ID(r.interned(texts)), tenant.KeyID(r.interned(texts))
		for _, rate := range e.rates() {
			*rate = r.varint()
		}
		flat := live.Flat(e.Price.Input, e.Price.Output)
		flat.CachedInput = e.Price.CachedInput
		e.Price = flat
	}
	if len(r.rest) > 0 {
		if e.whole() {
			e.Own = r.byte() == 1
			for _, rate := range e.laterRates() {
				*rate = r.varint()
			}
		}
		for _, amount := range e.laterAmounts() {
			*amount = r.varint()
		}
	}
	if len(r.rest) > 0 {
		e.Usage.GPUSeconds = r.varint()
		if e.whole() {
			e.Price.GPUSecond, e.Hold = money.Rate(r.varint()), r.interned(texts)
		}
	}
	if len(r.rest) > 0 && e.whole() {
		e.Tag = r.interned(texts)
	}
	if r.short || len(r.rest) != 0 {
		return e, 0, errors.New("a record whose checksum is right and whose fields are not")
	}
	return e, headerSize + int(length), nil
}

type reader struct {
	rest  []byte
	short bool
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.short = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.short = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() string { return string(r.bytes()) }

// interned returns the next text, and shares the string with earlier equal ones.
func (r *reader) interned(met map[string]string) string {
	raw := r.bytes()
	text, ok := met[string(raw)]
	if !ok {
		text = string(raw)
		met[text] = text
	}
	return text
}

func (r *reader) bytes() []byte {
	length, n := binary.Uvarint(r.rest)
	if n <= 0 || length > uint64(len(r.rest)-n) {
		r.short = true
		return nil
	}
	raw := r.rest[n : n+int(length)]
	r.rest = r.rest[n+int(length):]
	return raw
}
