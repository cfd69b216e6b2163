// Package sim is a provider inside the binary, so that every feature can be tried without a key and without a
// network. It takes the bytes that a provider would take and answers with the bytes that one would answer with, so
// that all of the gateway's road runs over it unchanged. Its answers are invented and say so.
//
// An answer follows from the model, the seed, the messages and the parameters that shape it: the same request has the
// same answer, ids and time included, streamed or not. Only the error rate looks at more: the fate of a request is
// drawn from the seed, the messages and how many requests the provider has drawn for before, so that a second try can
// succeed and a single caller sees the same run of failures after every start.
//
// Tokens are a quarter of the bytes, rounded up: of each text that is answered, and of all text that is asked, which
// counts as one at least. A part of a message that is not text counts as 85. No answer is over max_tokens or the
// model's maximum, thinking included.
//
// A request may set how the model acts, in its field sim. Every member is optional:
//
//	seed         of the answers
//	latency_ms   before the head of the answer
//	chunk_ms     between the chunks of a stream
//	chunks       that a text, a line of thought or a tool call's arguments is streamed in; 0 is one for each token.
//	             No chunk is empty, so that a text has no more of them than characters
//	tokens       of an answer in plain text, exactly
//	quality      of answers, 0 to 1: their mean, and also the share of them that is good, which is 0.5 or better. Each
//	             answer of plain text ends with its own, as in [sim quality=0.83], unless it has under 9 tokens
//	sensitivity  as a judge: the share of good texts that it passes
//	specificity  as a judge: the share of bad texts that it fails
//	error_rate   the share of requests that fail with 503
//	fail         how this one fails: status_400, status_401 and so on, hang, garbage, die or error_event
//	fail_after   how many chunks come before that. Without it a stream dies or sends its error half-way, sends
//	             garbage at once, and hangs before the head; 0 is after the head, before any event
//	usage        normal, none, zero, or numbers: prompt_tokens, completion_tokens, cached_tokens
//
// A model's [live.Behaviour] holds what is true of it unless a request says otherwise.
package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
	"sovereign/internal/wire/upstream"
)

const (
	jsonType   = "application/json"
	streamType = "text/event-stream"
)

// New is the provider. Every model of live.Sim can share one.
func New() upstream.Sender { return &provider{} }

type provider struct{ drawn atomic.Uint64 }

// Send answers r. A request that a provider would refuse is an answer too, with a status and an error envelope; Send
// itself fails only when ctx ends.
func (p *provider) Send(ctx context.Context, r *upstream.Request) (*upstream.Response, error) {
	a, err := p.answer(r)
	if err != nil {
		a = refused(err)
	}
	if err := sleep(ctx, a.wait); err != nil {
		return nil, fmt.Errorf("simulate %s: %w", r.Model.ID, err)
	}
	return &upstream.Response{Status: a.status, ContentType: a.kind, RetryAfter: a.retryAfter, Body: newBody(ctx, a.frames)}, nil
}

// Close does nothing: there is no connection.
func (*provider) Close() {}

// An answer is a response before it is sent.
type answer struct {
	wait       time.Duration // before its head
	status     int
	kind       string
	retryAfter time.Duration
	frames     frames
}

// A question is the body of a request to one path.
type question interface {
	// check reports the first rule that the question breaks.
	check(m *live.Model) error
	// overrides is its field sim.
	overrides() jsontext.Value
	// matter is what its answer is drawn from.
	matter() []string
	// answer is drawn from key.
	answer(m *live.Model, s settings, key uint64) (answer, error)
}

var routes = map[string]struct {
	kind live.Kind
	read func() question
}{
	"/chat/completions": {live.Chat, func() question { return &chat{} }},
	"/embeddings":       {live.Embedding, func() question { return &embed{} }},
	upstream.RerankPath: {live.Rerank, func() question { return &ranking{} }},
}

func (p *provider) answer(r *upstream.Request) (answer, error) {
	route, ok := routes[r.Path]
	if !ok {
		return answer{}, &refusal{status: http.StatusNotFound, kind: invalidRequest, message: "Invalid URL (POST " + r.Path + ")"}
	}
	if route.kind != r.Model.Kind {
		return answer{}, invalid("model", "%s is a model for %s", r.Model.ID, r.Model.Kind)
	}
	q := route.read()
	if err := decode(bytes.Join(r.Body, nil), q); err != nil {
		return answer{}, err
	}
	s, err := readSettings(r.Model.Behaviour, q.overrides())
	if err != nil {
		return answer{}, err
	}
	if err := q.check(r.Model); err != nil {
		return answer{}, err
	}
	key := hash(s.Seed, append(q.matter(), r.Model.ID)...)
	s.fail = p.fate(s, key)
	var a answer
	if failure, ok := statuses[s.fail]; ok {
		a = refused(failure)
	} else if a, err = q.answer(r.Model, s, key); err != nil {
		return answer{}, err
	}
	a.wait = s.wait(a.kind == streamType)
	return a, nil
}

// fate is how a request fails, if it does.
func (p *provider) fate(s settings, key uint64) string {
	if s.fail != "" || s.ErrorRate <= 0 {
		return s.fail
	}
	if unit(hash(key, "fate", strconv.FormatUint(p.drawn.Add(1), 10))) < s.ErrorRate {
		return "status_503"
	}
	return ""
}

// hash is a number that depends on all of its arguments and looks like a random one.
func hash(seed uint64, parts ...string) uint64 {
	h := sha256.New()
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], seed)
	h.Write(word[:])
	for _, part := range parts {
		binary.LittleEndian.PutUint64(word[:], uint64(len(part)))
		h.Write(word[:])
		h.Write([]byte(part))
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// unit is h as a number in [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

const bytesPerToken = 4

// tokens is how many tokens that many bytes of text are.
func tokens(bytes int) int64 { return int64((bytes + bytesPerToken - 1) / bytesPerToken) }
