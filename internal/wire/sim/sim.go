// Package sim is a simulated provider inside the binary, so that every feature can be tried without a key and without a
// network. It accepts OpenAI's wire format and answers in it, so that the whole request path runs over it unchanged.
// Its answers are invented and say so.
//
// An answer is determined by the model, the seed, the messages and the parameters that shape it: the same request gets
// the same answer, including ids and time, streamed or not. Only error_rate depends on more: whether a request fails is
// drawn from the seed, the messages and the number of requests drawn before, so that a retry can succeed and a single
// caller sees the same sequence of failures after every start.
//
// Tokens are a quarter of the bytes, rounded up: of each text of the answer, and of all text of the request, which
// counts as at least one. A content part that is not text counts as 85. No answer exceeds max_tokens or the model's
// maximum, including reasoning.
//
// A chat calls a tool when tool_choice names or requires one. With auto, it calls those that the user's last text names
// or, failing that, the one that shares a word of its name or two of its description with that text. Its arguments are
// made up from the schema. After the tools' results it answers in text, so that an agent can be tried offline.
//
// A request may set the model's behaviour in its member sim. All members are optional:
//
//	seed         of the answers
//	latency_ms   before the header of the answer
//	chunk_ms     between the chunks of a stream
//	chunks       number of chunks of a text, of reasoning or of a tool call's arguments; 0 means one for each token.
//	             No chunk is empty, so that a text has at most as many chunks as characters
//	tokens       exact length of an answer in plain text
//	quality      of answers, 0 to 1: their mean, and also the share of good answers, which have 0.5 or better. Each
//	             answer in plain text ends with its own, as in [sim quality=0.83], unless it has fewer than 9 tokens
//	sensitivity  as a judge: the share of good texts that it passes
//	specificity  as a judge: the share of bad texts that it fails
//	error_rate   the share of requests that fail with 503
//	fail         how this request fails: status_400, status_401 and so on, hang, garbage, die or error_event
//	fail_after   number of chunks before the failure. By default a stream dies or sends its error half-way, sends
//	             garbage at once, and hangs before the header; 0 means after the header, before any event
//	usage        normal, none, zero, or numbers: prompt_tokens, completion_tokens, cached_tokens
//
// A model's [live.Behaviour] holds the defaults.
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

// New returns the provider. All models of live.Sim can share one.
func New() upstream.Sender { return &provider{} }

type provider struct{ draws atomic.Uint64 }

// Send answers r. An invalid request is answered with a status and an error body; Send itself fails only when ctx ends.
func (p *provider) Send(ctx context.Context, r *upstream.Request) (*upstream.Response, error) {
	a, err := p.answer(r)
	if err != nil {
		a = errorAnswer(err)
	}
	if err := sleep(ctx, a.wait); err != nil {
		return nil, fmt.Errorf("simulate %s: %w", r.Model.ID, err)
	}
	return &upstream.Response{
		Status: a.status, ContentType: a.kind, RetryAfter: a.retryAfter,
		Body: newBody(ctx, a.frames),
	}, nil
}

// Close does nothing: there are no connections.
func (*provider) Close() {}

// answer is a response before it is sent.
type answer struct {
	wait       time.Duration // before the header
	status     int
	kind       string
	retryAfter time.Duration
	frames     frames
}

// request is the body of a request to one path.
type request interface {
	// check returns the first violation.
	check(m *live.Model) error
	// simField returns the member sim.
	simField() jsontext.Value
	// seedTexts returns the texts that determine the answer.
	seedTexts() []string
	// answer generates the answer from key.
	answer(m *live.Model, s settings, key uint64) (answer, error)
}

var routes = map[string]struct {
	kind live.Kind
	read func() request
}{
	"/chat/completions": {live.Chat, func() request { return &chatRequest{} }},
	"/embeddings":       {live.Embedding, func() request { return &embedRequest{} }},
	upstream.RerankPath: {live.Rerank, func() request { return &rerankRequest{} }},
}

func (p *provider) answer(r *upstream.Request) (answer, error) {
	route, ok := routes[r.Path]
	if !ok {
		return answer{}, &apiError{
			status: http.StatusNotFound, kind: invalidRequest, message: "Invalid URL (POST " + r.Path + ")",
		}
	}
	if route.kind != r.Model.Kind {
		return answer{}, invalid("model", "%s is a model for %s", r.Model.ID, r.Model.Kind)
	}
	q := route.read()
	if err := decode(bytes.Join(r.Body, nil), q); err != nil {
		return answer{}, err
	}
	s, err := readSettings(r.Model.Behaviour, q.simField())
	if err != nil {
		return answer{}, err
	}
	if err := q.check(r.Model); err != nil {
		return answer{}, err
	}
	key := hash(s.Seed, append(q.seedTexts(), r.Model.ID)...)
	s.fail = p.drawFailure(s, key)
	var a answer
	if failure, ok := statusErrors[s.fail]; ok {
		a = errorAnswer(failure)
	} else if a, err = q.answer(r.Model, s, key); err != nil {
		return answer{}, err
	}
	a.wait = s.headDelay(a.kind == streamType)
	return a, nil
}

// drawFailure returns how a request fails; empty if it does not.
func (p *provider) drawFailure(s settings, key uint64) string {
	if s.fail != "" || s.ErrorRate <= 0 {
		return s.fail
	}
	if unit(hash(key, "fate", strconv.FormatUint(p.draws.Add(1), 10))) < s.ErrorRate {
		return "status_503"
	}
	return ""
}

// hash returns a pseudo-random number that is determined by its arguments.
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

// unit maps h to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

const bytesPerToken = 4

// tokens returns the number of tokens of so many bytes.
func tokens(bytes int) int64 { return int64((bytes + bytesPerToken - 1) / bytesPerToken) }
