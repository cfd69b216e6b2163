package capture

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/spool"
)

// A Split is the requests that a gate draws from: those of an alias during an epoch.
type Split struct {
	Workspace tenant.ID
	Alias     string
	Epoch     string
}

// A Place is the place of a drawn request among those of its split. Sources sort by their start, and end with the name
// of the membership in which they began, if there is one, after a dot.
type Place struct {
	Source  string
	Seq     int64 // from 1; 0 for a request that is not drawn
	At      clock.Time
	Expires clock.Time
}

// A Draw is the record of a request that a gate has drawn. It holds no text of the exchange.
type Draw struct {
	Workspace tenant.ID
	Alias     string
	Epoch     string
	Stratum   int64
	Place
	Request  string
	Arm      live.Arm
	Model    string // that answered; empty for none
	Outcome  outcome.Sample
	Latency  int64 // microseconds
	Cost     money.Nano
	Question Question
}

// A Question is a digest of a request's messages. The same messages have the same digest under a key. Whoever does not
// have the key cannot find out whether a text was asked.
type Question [16]byte

// NewQuestion returns the digest of messages, as the caller sent them. The tools and the parameters of a request do not
// matter.
func NewQuestion(key string, messages []byte) (q Question) {
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	text := append(append((*buffer)[:0], key...), messages...)
	sum := sha256.Sum256(text)
	copy(q[:], sum[:])
	if *buffer = text; cap(text) > maxPooledBuffer {
		*buffer = nil
	}
	return q
}

// numbers and texts list the fields in the order in which they are encoded.
func (d *Draw) numbers() [6]*int64 {
	return [...]*int64{&d.Stratum, &d.Seq, (*int64)(&d.At), (*int64)(&d.Expires), &d.Latency, (*int64)(&d.Cost)}
}

func (d *Draw) texts() [8]*string {
	return [...]*string{
		(*string)(&d.Workspace), &d.Alias, &d.Epoch, &d.Source, &d.Request, (*string)(&d.Arm), &d.Model,
		(*string)(&d.Outcome),
	}
}

// Append appends the encoded draw to to.
func (d *Draw) Append(to []byte) []byte {
	numbers, texts := d.numbers(), d.texts()
	return append(appendFields(append(to, drawFormat), numbers[:], texts[:]), d.Question[:]...)
}

// IsDraw reports whether a record is a draw. Others are rows.
func IsDraw(record []byte) bool {
	return len(record) > 0 && (record[0] == drawFormat || record[0] == oldDrawFormat)
}

// ParseDraw decodes a draw.
func ParseDraw(from []byte) (*Draw, error) {
	if !IsDraw(from) {
		return nil, errUnknownFormat
	}
	d := new(Draw)
	numbers, texts := d.numbers(), d.texts()
	rest, err := parseFields(from[1:], numbers[:], texts[:])
	if err == nil && from[0] == drawFormat {
		if len(rest) < len(d.Question) {
			return nil, errShort
		}
		rest = rest[copy(d.Question[:], rest):]
	}
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0:
		return nil, errTrailing
	}
	return d, nil
}

// AppendDraw appends the record of a draw to a list of them.
func AppendDraw(to, record []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(record))), record...)
}

// EachDraw yields the draws of a list that AppendDraw has made.
func EachDraw(list []byte) iter.Seq2[*Draw, error] {
	return func(yield func(*Draw, error) bool) {
		for len(list) > 0 {
			record, rest, ok := lengthPrefixed(list)
			if !ok {
				yield(nil, errShort)
				return
			}
			if list = rest; !yield(ParseDraw(record)) {
				return
			}
		}
	}
}

// Draw gives a request the next place in its split. What became of the request must be recorded in any case, by Record
// or by Drawn, once. Then a number is missing in a source only while its request runs, or if the process was killed.
//
// A source is this process since its start. It ends earlier when the spool loses a record, which may have been a
// draw's, and when this node's membership ends. A later source then exists, so readers stop waiting for missing numbers.
// While the spool could lose records, nothing is drawn.
func (r *Recorder) Draw(of Split) Place {
	days := r.settings.Of(of.Workspace).LogDays
	r.drawing.Lock()
	defer r.drawing.Unlock()
	state := r.spool.State()
	if days == 0 || state.Failure != nil || state.Budget-state.Waiting < spool.MaxRecord {
		return Place{}
	}
	at := r.uniqueTime()
	if life := r.membership(); r.source == "" || state.Lost != r.lost || life != r.life {
		r.source, r.lost, r.life, r.draws = id.At("src", at.Std()), state.Lost, life, map[Split]int64{}
		if life != "" {
			r.source += "." + life
		}
	}
	seq := r.draws[of] + 1
	r.draws[of] = seq
	return Place{Source: r.source, Seq: seq, At: at, Expires: at.Add(time.Duration(days) * 24 * time.Hour)}
}

func (r *Recorder) membership() string {
	if r.Life == nil {
		return ""
	}
	return r.Life()
}

// Drawn records what became of a request that was drawn, and is not logged.
func (r *Recorder) Drawn(d *Draw) { r.append(nil, d) }
