package gateway

import (
	"strings"

	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

// Labels are what a caller says of a request for the log. Only a front end sets them: what the product asks of itself has none, and is
// never logged.
type Labels struct {
	Tag   string
	Trace string
	Off   bool // it is not to be logged
}

// dedicated is how the names of models begin that run on a workspace's own machines: what they say is never logged.
const dedicated = "dedicated/"

// wanted reports whether the request's exchange is to be logged, should it come to an end. Whoever turns logging on means what
// begins afterwards; who turns it off, everything from then on, which is asked again at the end.
func (r *run) wanted() bool {
	a := r.ask
	return r.gateway.Recorder != nil && a.Labels != nil && !a.Labels.Off && a.Endpoint == Chat && r.gateway.Recorder.Enabled(a.Caller.Workspace)
}

// log hands an exchange that has come to its end to the log. answer is the whole of it.
func (r *run) log(answer []byte, used live.Usage, cost money.Nano) {
	served := r.model.ID
	if r.served != "" {
		served = r.served
	}
	if strings.HasPrefix(served, dedicated) {
		return
	}
	a := r.ask
	e := capture.Exchange{
		Workspace: a.Caller.Workspace, Key: a.Caller.Key, Request: a.ID, Model: served, Requested: a.model, Alias: r.plan.alias,
		Provider: r.model.Provider.Name, Tag: a.Labels.Tag, Trace: a.Labels.Trace, Stream: a.stream, Cached: r.outcome == Cached,
		Answer: answer, Usage: used, Cost: cost, Latency: r.clock.now.Sub(r.clock.started), First: r.begins,
	}
	if first := r.plan.order[0]; r.outcome != Cached && first.Model != r.model.Model {
		e.FallbackFrom = first.ID
	}
	for i := range a.members {
		switch m := &a.members[i]; m.Name {
		case "messages":
			e.Messages = m.Value
		case "tools":
			e.Tools = m.Value
		}
	}
	r.gateway.Recorder.Record(&e)
}

// cost is what the model that answered takes for so much.
func (r *run) cost(u live.Usage) money.Nano { return r.model.price.At(u.Input).Of(u) }

// A tape keeps a stream as it came, for the log. It is put together when the caller has its last byte, or before where it is long.
type tape struct {
	raw    []byte
	events sse.Reader
	whole  chat.Assembler
	done   bool  // what comes after the end is of no interest
	broken error // it cannot be put together, or is too long
}

// maxRaw is how much of a stream is kept as it came, and maxAssembled how much of it put together: logprobs and other choices too, of which
// nothing is logged.
const (
	maxRaw       = 64 << 10
	maxAssembled = 8 << 20
)

func newTape() *tape {
	return &tape{events: sse.Reader{Most: maxEvent}, whole: chat.Assembler{MaxBytes: maxAssembled}}
}

func (t *tape) add(piece []byte) {
	if t == nil || t.broken != nil {
		return
	}
	if t.raw = append(t.raw, piece...); len(t.raw) > maxRaw {
		t.wind()
	}
}

// wind puts together what came.
func (t *tape) wind() {
	piece := t.raw
	for len(piece) > 0 && t.broken == nil && !t.done {
		e, rest, ok, err := t.events.Next(piece)
		piece, t.broken = rest, err
		if !ok {
			continue
		}
		if t.done = string(e.Data) == "[DONE]"; !t.done {
			t.broken = t.whole.Add(e.Data)
		}
	}
	t.raw = t.raw[:0]
}

// end is the answer that was streamed.
func (t *tape) end() ([]byte, error) {
	t.wind()
	if t.broken != nil {
		return nil, t.broken
	}
	return t.whole.Answer()
}
