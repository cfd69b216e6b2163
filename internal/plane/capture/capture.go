// Package capture makes logged rows of chat exchanges, on the road of a request and without a database: it takes the credentials out,
// names the system prompt, and puts the row into the spool. Nothing that was not cleaned is ever written to a disk.
package capture

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/spool"
	"sovereign/internal/text/fold"
	"sovereign/internal/text/redact"
	"sovereign/internal/text/segment"
	"sovereign/internal/wire/chat"
)

// MaxSize is how large an exchange may be, in bytes of what is stored. A larger one is not logged: half of one would be a lie.
const MaxSize = 512 << 10

// An Exchange is a chat that was answered to its end. Its bytes are its owner's: nothing of them is kept.
type Exchange struct {
	Workspace    tenant.ID
	Key          tenant.KeyID
	Request      string
	Model        string // that answered
	Requested    string
	Alias        string
	Provider     string
	FallbackFrom string
	Tag          string
	Trace        string
	Stream       bool
	Cached       bool
	Messages     []byte // as the caller sent them
	Tools        []byte // likewise; nil when there were none
	Answer       []byte // the whole of it, as one that was not streamed
	Usage        live.Usage
	Cost         money.Nano
	Latency      time.Duration
	First        time.Duration // until the first content
}

// A Recorder logs exchanges of workspaces that want it.
type Recorder struct {
	settings *live.AllSettings
	spool    *spool.Spool
	gate     sync.RWMutex // held for reading while a row is put into the spool
	last     atomic.Int64 // the time of the newest row

	taken, large, unread atomic.Int64
}

// NewRecorder records into s what settings say.
func NewRecorder(settings *live.AllSettings, s *spool.Spool) *Recorder {
	return &Recorder{settings: settings, spool: s}
}

// Counts are what became of exchanges since the start.
type Counts struct {
	Logged     int64
	TooLarge   int64
	Unreadable int64 // what a provider took, and is no list of messages all the same
	Lost       int64 // for which the spool had no room, or could not be written
}

// Counts tells them.
func (r *Recorder) Counts() Counts {
	return Counts{Logged: r.taken.Load(), TooLarge: r.large.Load(), Unreadable: r.unread.Load(), Lost: r.spool.State().Lost}
}

// Wants reports whether a workspace's exchanges are logged now.
func (r *Recorder) Enabled(ws tenant.ID) bool { return r.settings.Of(ws).LogDays > 0 }

// Skip counts an exchange that could not be put together.
func (r *Recorder) Skip(err error) {
	if errors.Is(err, chat.ErrTooLong) {
		r.large.Add(1)
	} else {
		r.unread.Add(1)
	}
}

// After makes every row newer than a time: the newest that there is, wherever the clock stands.
func (r *Recorder) After(t clock.Time) { r.last.Store(max(r.last.Load(), int64(t))) }

// Settle returns when every row of before is in the spool. Whoever has put an end to logging calls it, and can then say that nothing
// is written any more.
func (r *Recorder) Settle() {
	r.gate.Lock()
	r.gate.Unlock() //nolint:staticcheck // to have waited is all
}

// Record logs an exchange, if its workspace wants that still.
func (r *Recorder) Record(e *Exchange) {
	if !r.Enabled(e.Workspace) {
		return
	}
	row, ok := r.row(e)
	if !ok {
		return
	}
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	r.gate.RLock()
	defer r.gate.RUnlock()
	days := r.settings.Of(e.Workspace).LogDays
	if days == 0 {
		return
	}
	row.At = r.now()
	row.Expires = row.At.Add(time.Duration(days) * 24 * time.Hour)
	row.ID = id.At("log", row.At.Std())
	*buffer = row.Append((*buffer)[:0])
	if r.spool.Append(*buffer) {
		r.taken.Add(1)
	}
	if cap(*buffer) > maxKept {
		*buffer = nil
	}
}

// buffers are for encoded rows; a larger one than most is not kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxKept = 64 << 10

// now is a time that no other row has.
func (r *Recorder) now() clock.Time {
	for {
		last := r.last.Load()
		next := max(int64(clock.Now()), last+1)
		if r.last.CompareAndSwap(last, next) {
			return clock.Time(next)
		}
	}
}

// row is the exchange without its credentials.
func (r *Recorder) row(e *Exchange) (*Row, bool) {
	message, finish, ok := answered(e.Answer)
	if !ok {
		r.unread.Add(1)
		return nil, false
	}
	if len(e.Messages)+len(e.Tools)+len(message) > MaxSize {
		r.large.Add(1)
		return nil, false
	}
	row := &Row{
		Workspace: e.Workspace, Key: e.Key, Request: e.Request, Model: e.Model, Requested: e.Requested, Alias: e.Alias, Provider: e.Provider,
		FallbackFrom: e.FallbackFrom, Stream: e.Stream, Cached: e.Cached,
		Prompt: e.Usage.Input, Completion: e.Usage.Output, Cost: e.Cost, Latency: e.Latency.Microseconds(), First: e.First.Microseconds(),
	}
	row.clean(e.Messages, e.Tools, message, e.Tag, e.Trace, finish)
	chain, err := fold.Keys(row.Messages, row.Response)
	if err != nil && (!valid(row.Messages) || !valid(row.Response)) || len(row.Tools) > 0 && !valid(row.Tools) {
		r.unread.Add(1)
		return nil, false
	}
	row.Chain = chain.Bytes() // what is odd, but JSON, folds with nothing
	row.Exact = segment.Exact(System(row.Messages))
	return row, true
}

// word is a provider's word for something, as far as it is one.
func word(text string) string {
	const most = 64
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return -1
		}
		return r
	}, text[:min(len(text), most)])
	return text
}

// clean takes the credentials out of everything that a caller or a model has written.
func (r *Row) clean(messages, tools, response []byte, tag, trace, finish string) {
	var all redact.Exchange
	r.Messages, r.Tools, r.Response = all.JSON(messages), all.JSON(tools), all.JSON(response)
	labels := [...][]byte{all.Text([]byte(tag)), all.Text([]byte(trace)), all.Text([]byte(word(finish)))}
	r.Messages, r.Tools, r.Response = all.RedactFound(r.Messages), all.RedactFound(r.Tools), all.RedactFound(r.Response)
	r.Tag, r.Trace, r.Finish = string(all.RedactFound(labels[0])), string(all.RedactFound(labels[1])), string(all.RedactFound(labels[2]))
}
