package gateway

import (
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/chat"
)

// A recording keeps a stream as it arrives, for the log. It is put together after the caller has its last byte, or
// earlier if it is long. A nil recording keeps nothing.
type recording struct {
	raw    []byte
	events sse.Reader
	whole  chat.Assembler
	done   bool  // the stream has ended: what follows does not matter
	err    error // it cannot be put together, or is too long
}

// maxRaw bounds the part of a stream that is kept as it arrived. maxAssembled bounds what is put together, which
// includes logprobs and other choices that are not logged.
const (
	maxRaw       = 64 << 10
	maxAssembled = 8 << 20
	maxEvent     = 8 << 20 // bytes of one event
)

func newRecording() *recording {
	return &recording{events: sse.Reader{Most: maxEvent}, whole: chat.Assembler{MaxBytes: maxAssembled}}
}

func (r *recording) add(piece []byte) {
	if r == nil || r.err != nil {
		return
	}
	if r.raw = append(r.raw, piece...); len(r.raw) > maxRaw {
		r.assemble()
	}
}

// assemble puts together what was kept.
func (r *recording) assemble() {
	piece := r.raw
	for len(piece) > 0 && r.err == nil && !r.done {
		e, rest, ok, err := r.events.Next(piece)
		piece, r.err = rest, err
		if !ok {
			continue
		}
		if r.done = string(e.Data) == "[DONE]"; !r.done {
			r.err = r.whole.Add(e.Data)
		}
	}
	r.raw = r.raw[:0]
}

// answer returns the whole answer that was streamed.
func (r *recording) answer() ([]byte, error) {
	r.assemble()
	if r.err != nil {
		return nil, r.err
	}
	return r.whole.Answer()
}
