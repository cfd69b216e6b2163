// Package capture turns chat exchanges into log rows, on the request path and without a database: it redacts
// credentials, identifies the system prompt, and appends the row to the spool. Nothing is written to disk before it
// is redacted. It also records, without any text, what became of the requests that the gates of aliases draw.
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

// MaxSize bounds an exchange, in stored bytes. A larger one is not logged at all: a truncated one would mislead.
const MaxSize = 512 << 10

// An Exchange is a chat that was answered completely. Its byte slices belong to the caller; none of them is retained.
type Exchange struct {
	Workspace    tenant.ID
	Key          tenant.KeyID
	Request      string
	Model        string // the one that answered
	Requested    string
	Alias        string
	Provider     string
	FallbackFrom string
	Tag          string
	Trace        string
	Stream       bool
	Cached       bool
	Messages     []byte // as the caller sent them
	Tools        []byte // as the caller sent them; nil when there were none
	Answer       []byte // the complete answer, in the form of one that was not streamed
	Usage        live.Usage
	Cost         money.Nano
	Latency      time.Duration
	First        time.Duration // until the first content
	Draw         *Draw         // of the request, if it was drawn
}

// A Recorder logs the exchanges of workspaces that have logging enabled.
type Recorder struct {
	// Life names this node's present membership, for the sources of draws. Nil, or an empty name, is that of the only
	// server. It is set before the first draw.
	Life func() string

	settings  *live.AllSettings
	spool     *spool.Spool
	appending sync.RWMutex // read-locked while a row is appended to the spool
	last      atomic.Int64 // the time of the newest row or draw

	drawing sync.Mutex      // guards what follows
	source  string          // of draws
	life    string          // in which the source began
	lost    int64           // records that the spool had lost when the source began
	draws   map[Split]int64 // of the source, so far

	logged, tooLarge, unreadable atomic.Int64
}

// NewRecorder returns a recorder that appends to s and follows settings.
func NewRecorder(settings *live.AllSettings, s *spool.Spool) *Recorder {
	return &Recorder{settings: settings, spool: s}
}

// Counts are the numbers of exchanges since the start, by result.
type Counts struct {
	Logged     int64
	TooLarge   int64
	Unreadable int64 // messages or answers that are not valid JSON, although the provider accepted them
	Lost       int64 // refused by the spool, or not written
}

// Counts returns the numbers so far.
func (r *Recorder) Counts() Counts {
	return Counts{
		Logged: r.logged.Load(), TooLarge: r.tooLarge.Load(), Unreadable: r.unreadable.Load(),
		Lost: r.spool.State().Lost,
	}
}

// Enabled reports whether a workspace's exchanges are logged now.
func (r *Recorder) Enabled(ws tenant.ID) bool { return r.settings.Of(ws).LogDays > 0 }

// Skip counts an exchange that could not be assembled.
func (r *Recorder) Skip(err error) {
	if errors.Is(err, chat.ErrTooLong) {
		r.tooLarge.Add(1)
	} else {
		r.unreadable.Add(1)
	}
}

// After makes every further row and draw newer than t, the time of the newest existing one, wherever the clock stands.
func (r *Recorder) After(t clock.Time) { r.last.Store(max(r.last.Load(), int64(t))) }

// Settle returns when every row whose recording began before is in the spool. After logging was disabled and Settle
// has returned, no more rows are written.
func (r *Recorder) Settle() {
	r.appending.Lock()
	r.appending.Unlock() //nolint:staticcheck // to have waited is all
}

// Record logs an exchange if its workspace still has logging enabled. The draw of its request is recorded with it, and
// also without it.
func (r *Recorder) Record(e *Exchange) {
	var row *Row
	if r.Enabled(e.Workspace) {
		row = r.row(e)
	}
	r.append(row, e.Draw)
}

// append appends a row, if its workspace still has logging enabled, and then a draw, in one write. Each may be nil.
func (r *Recorder) append(row *Row, d *Draw) {
	buffer, _ := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	r.appending.RLock()
	defer r.appending.RUnlock()
	var array [2][]byte
	all, records := (*buffer)[:0], array[:0]
	logged := row != nil && r.date(row)
	if logged {
		all = row.Append(all)
		records = append(records, all)
	}
	if d != nil {
		from := len(all)
		all = d.Append(all)
		records = append(records, all[from:])
	}
	if len(records) > 0 && r.spool.Append(records...) && logged {
		r.logged.Add(1)
	}
	if *buffer = all; cap(all) > maxPooledBuffer {
		*buffer = nil
	}
}

// date gives a row its time, expiry and id. It returns false if its workspace does not log any more.
func (r *Recorder) date(row *Row) bool {
	days := r.settings.Of(row.Workspace).LogDays
	if days == 0 {
		return false
	}
	row.At = r.uniqueTime()
	row.Expires = row.At.Add(time.Duration(days) * 24 * time.Hour)
	row.ID = id.At("log", row.At.Std())
	return true
}

// buffers pools buffers for encoded rows. Unusually large ones are not pooled.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledBuffer = 64 << 10

// uniqueTime returns a time that no other row has.
func (r *Recorder) uniqueTime() clock.Time {
	for {
		last := r.last.Load()
		next := max(int64(clock.Now()), last+1)
		if r.last.CompareAndSwap(last, next) {
			return clock.Time(next)
		}
	}
}

// row returns the exchange with its credentials redacted, or nil if it cannot be logged.
func (r *Recorder) row(e *Exchange) *Row {
	message, finish, ok := firstChoice(e.Answer)
	if !ok {
		r.unreadable.Add(1)
		return nil
	}
	if len(e.Messages)+len(e.Tools)+len(message) > MaxSize {
		r.tooLarge.Add(1)
		return nil
	}
	row := &Row{
		Workspace: e.Workspace, Key: e.Key, Request: e.Request, Model: e.Model, Requested: e.Requested, Alias: e.Alias,
		Provider:     e.Provider,
		FallbackFrom: e.FallbackFrom, Stream: e.Stream, Cached: e.Cached,
		Prompt: e.Usage.Input, Completion: e.Usage.Output, Cost: e.Cost, Latency: e.Latency.Microseconds(),
		First: e.First.Microseconds(),
	}
	row.clean(e.Messages, e.Tools, message, e.Tag, e.Trace, finish)
	chain, err := fold.Keys(row.Messages, row.Response)
	if err != nil && (!valid(row.Messages) || !valid(row.Response)) || len(row.Tools) > 0 && !valid(row.Tools) {
		r.unreadable.Add(1)
		return nil
	}
	row.Chain = chain.Bytes() // without keys, for unusual but valid JSON, the row is folded with no other
	row.Exact = segment.Exact(System(row.Messages))
	return row
}

// sanitizeFinish cuts a provider's finish reason to 64 bytes and removes control characters.
func sanitizeFinish(text string) string {
	const most = 64
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == utf8.RuneError {
			return -1
		}
		return r
	}, text[:min(len(text), most)])
	return text
}

// clean redacts the credentials in everything that a caller or a model has written.
func (r *Row) clean(messages, tools, response []byte, tag, trace, finish string) {
	var all redact.Exchange
	r.Messages, r.Tools, r.Response = all.Messages(messages), all.JSON(tools), all.Messages(response)
	fields := [...][]byte{all.Text([]byte(tag)), all.Text([]byte(trace)), all.Text([]byte(sanitizeFinish(finish)))}
	r.Messages, r.Tools, r.Response = all.RedactFound(r.Messages), all.RedactFound(r.Tools), all.RedactFound(r.Response)
	r.Tag, r.Trace, r.Finish = string(all.RedactFound(fields[0])), string(all.RedactFound(fields[1])), string(all.RedactFound(fields[2]))
}
