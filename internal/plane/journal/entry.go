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

// A Kind says what an entry states.
type Kind byte

// The kinds.
const (
	Opened     Kind = 1 // a request has delivered its first content and owes this much, should it end now
	Progressed Kind = 2 // it has delivered more
	Settled    Kind = 3 // it has ended; this is its charge
	Marked     Kind = 4 // nothing: the journal could be written
)

// A Charge is what one request used, and what that costs.
type Charge struct {
	Request   string
	Workspace tenant.ID
	Key       tenant.KeyID
	At        clock.Time
	Route     string
	Model     string // that answered
	Requested string // as the caller named it
	Alias     string // when that was one
	Provider  string
	Outcome   string
	Counted   bool // by us: the provider reported nothing
	Usage     live.Usage
	Price     live.Rates
	Own       bool       // it ran with the workspace's own key
	Cost      money.Nano // of the usage at the price
	Charged   money.Nano // of it to the wallet; the rest is the operator's
}

// An Entry is one record of the journal. Of a Progressed one only the request and the amounts are kept.
type Entry struct {
	Kind Kind
	Charge
}

// frame is the head of a record: the payload's length and checksum.
const (
	frame      = 8
	maxPayload = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn says that what follows is no whole record.
var errTorn = errors.New("no whole record")

// appendEntry encodes e with its frame.
func appendEntry(to []byte, e *Entry) []byte {
	start := len(to)
	to = append(to, 0, 0, 0, 0, 0, 0, 0, 0, byte(e.Kind))
	to = appendText(to, e.Request)
	for _, amount := range e.amounts() {
		to = binary.AppendVarint(to, *amount)
	}
	if e.Kind == Opened || e.Kind == Settled {
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
	payload := to[start+frame:]
	binary.LittleEndian.PutUint32(to[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(to[start+4:], crc32.Checksum(payload, castagnoli))
	return to
}

// amounts, texts and rates are the fields of each shape, in the order of the file.
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

// laterAmounts and laterRates came with a later release. A record of an earlier one ends before them, and used none of
// what they count.
func (e *Entry) laterAmounts() []*int64 {
	return []*int64{&e.Usage.Written, &e.Usage.AudioInput, &e.Usage.AudioOutput, &e.Usage.Searches}
}

func (e *Entry) laterRates() []*int64 {
	p := &e.Price
	return []*int64{(*int64)(&p.WrittenInput), (*int64)(&p.AudioInput), (*int64)(&p.Reasoning), (*int64)(&p.AudioOutput), (*int64)(&p.Search)}
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// next decodes the first record of data, and says how long it is. Texts that it has met are kept in texts, to be used again.
func next(data []byte, texts map[string]string) (e Entry, size int, err error) {
	if len(data) < frame {
		return e, 0, errTorn
	}
	length := binary.LittleEndian.Uint32(data)
	if length == 0 || length > maxPayload || int(length) > len(data)-frame {
		return e, 0, errTorn
	}
	payload := data[frame : frame+int(length)]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(data[4:]) {
		return e, 0, errTorn
	}
	r := reader{rest: payload}
	e.Kind = Kind(r.byte())
	if e.Kind < Opened || e.Kind > Marked {
		return e, 0, fmt.Errorf("a record of unknown kind %d: a newer release wrote it", e.Kind)
	}
	e.Request = r.text()
	for _, amount := range e.amounts() {
		*amount = r.varint()
	}
	if e.Kind == Opened || e.Kind == Settled {
		e.Counted = r.byte() == 1
		for _, text := range e.texts() {
			*text = r.again(texts)
		}
		e.Workspace, e.Key = tenant.ID(r.again(texts)), tenant.KeyID(r.again(texts))
		for _, rate := range e.rates() {
			*rate = r.varint()
		}
		flat := live.Flat(e.Price.Input, e.Price.Output)
		flat.CachedInput = e.Price.CachedInput
		e.Price = flat
	}
	if len(r.rest) > 0 {
		if e.Kind == Opened || e.Kind == Settled {
			e.Own = r.byte() == 1
			for _, rate := range e.laterRates() {
				*rate = r.varint()
			}
		}
		for _, amount := range e.laterAmounts() {
			*amount = r.varint()
		}
	}
	if r.short || len(r.rest) != 0 {
		return e, 0, errors.New("a record whose checksum is right and whose fields are not")
	}
	return e, frame + int(length), nil
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

// again is a text that was perhaps met before.
func (r *reader) again(met map[string]string) string {
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
