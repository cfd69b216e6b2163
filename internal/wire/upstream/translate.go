package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"sovereign/internal/text/sse"
)

// A Dialect is another wire than OpenAI's. It is pure: bytes in, bytes out.
type Dialect interface {
	// Ask says a request in the dialect's words. What it cannot express is a *fault.Fault that names it.
	Ask(r *Request) (Exchange, error)
	// Refusal turns a refusal, of any status but 200, into the status and the body that OpenAI would have given.
	Refusal(status int, body []byte) (int, []byte)
}

// A Patient dialect has providers that say in a refusal's body how long they want to be left alone.
type Patient interface {
	Wait(refusal []byte) time.Duration
}

// An Exchange is one request in a dialect's words, and how its answer reads in ours. It belongs to one try.
type Exchange interface {
	// Wire is what is sent: the path below the provider's base URL, and the body.
	Wire() (path string, body []byte)
	// Answer turns a whole answer into ours. What cannot be read is an error.
	Answer(body []byte) ([]byte, error)
	// Event appends to to what an event of a stream says in ours: whole events, or nothing.
	Event(to []byte, e sse.Event) ([]byte, error)
	// End appends what is left to say when the connection has ended. That it ended is no end of an answer: one that is
	// not over broke off, which is io.ErrUnexpectedEOF.
	End(to []byte) ([]byte, error)
}

// translated speaks a dialect with a provider.
type translated struct {
	dialect Dialect
	to      Sender
	applies func(*Request) bool
}

// Translated is a sender that speaks a dialect over another sender, for the requests that it applies to.
func Translated(d Dialect, to Sender, applies func(*Request) bool) Sender {
	return &translated{dialect: d, to: to, applies: applies}
}

func (t *translated) Close() { t.to.Close() }

// bounds of what is read to be translated.
const (
	maxWhole   = 64 << 20
	maxRefusal = 64 << 10
	maxEvent   = 8 << 20
)

// Send implements Sender.
func (t *translated) Send(ctx context.Context, r *Request) (*Response, error) {
	if !t.applies(r) {
		return t.to.Send(ctx, r)
	}
	if !r.take(2 * r.Length()) { // the body in one piece, and in other words
		return nil, ErrNoRoom
	}
	exchange, err := t.dialect.Ask(r)
	if err != nil {
		return nil, err
	}
	said := *r
	var body []byte
	said.Path, body = exchange.Wire()
	said.Body = [][]byte{body}
	response, err := t.to.Send(ctx, &said)
	if err != nil {
		return nil, err
	}
	events := strings.HasPrefix(strings.ToLower(response.ContentType), "text/event-stream")
	switch {
	case response.Status != http.StatusOK:
		text, err := r.readWhole(response.Body, maxRefusal)
		if err != nil && !errors.Is(err, errTooLong) {
			text = nil // without its text it is a refusal all the same
		}
		if p, ok := t.dialect.(Patient); ok && response.RetryAfter == 0 {
			response.RetryAfter = min(max(0, p.Wait(text)), maxRetryAfter)
		}
		response.Status, text = t.dialect.Refusal(response.Status, text)
		response.ContentType, response.Body = "application/json", io.NopCloser(bytes.NewReader(text))
	case r.Stream && !events:
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: a stream was asked for and %q came", ErrGarbage, response.ContentType)
	case r.Stream:
		response.Body = &translation{exchange: exchange, from: response.Body, events: sse.Reader{Most: maxEvent}}
	default:
		response.Body = &answer{request: r, exchange: exchange, from: response.Body}
	}
	return response, nil
}

var errTooLong = errors.New("it is too long")

// ErrNoRoom says that there is no memory left for a request's bytes.
var ErrNoRoom = errors.New("too many bytes in flight")

func (r *Request) take(n int64) bool { return r.Take == nil || r.Take(n) }

// readWhole reads to the end, within what there is room for.
func (r *Request) readWhole(from io.ReadCloser, most int) ([]byte, error) {
	defer func() { _ = from.Close() }()
	all := make([]byte, 0, 4096)
	for {
		n, err := from.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		switch {
		case len(all) > most:
			return all[:most], errTooLong
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, err
		case len(all) == cap(all):
			if !r.take(int64(cap(all))) {
				return all, ErrNoRoom
			}
			all = append(make([]byte, 0, 2*cap(all)), all...)
		}
	}
}

// An answer is translated when it has come whole.
type answer struct {
	request  *Request
	exchange Exchange
	from     io.ReadCloser
	text     *bytes.Reader
}

func (a *answer) Close() error { return a.from.Close() }

func (a *answer) Read(p []byte) (int, error) {
	if a.text == nil {
		body, err := a.request.readWhole(a.from, maxWhole)
		switch {
		case errors.Is(err, errTooLong):
			return 0, fmt.Errorf("%w: %w", ErrGarbage, err)
		case err != nil:
			return 0, err
		}
		text, err := a.exchange.Answer(body)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrGarbage, err)
		}
		a.text = bytes.NewReader(text)
	}
	return a.text.Read(p)
}

// A translation is a stream that is translated as it comes.
type translation struct {
	exchange Exchange
	from     io.ReadCloser
	events   sse.Reader
	buffer   [8 << 10]byte
	out      []byte // translated, and not read yet
	at       int
	err      error
}

func (t *translation) Close() error { return t.from.Close() }

// Read hands over what has been translated before it waits for more. What comes and says nothing is a sign of life all the
// same: then it reads nothing, without an error.
func (t *translation) Read(p []byte) (int, error) {
	if t.at == len(t.out) && t.err == nil {
		t.fill()
	}
	if t.at == len(t.out) {
		return 0, t.err
	}
	n := copy(p, t.out[t.at:])
	t.at += n
	return n, nil
}

// fill translates what comes next.
func (t *translation) fill() {
	t.out, t.at = t.out[:0], 0
	n, err := t.from.Read(t.buffer[:])
	garbled := t.events.Feed(t.buffer[:n], func(e sse.Event) (err error) {
		t.out, err = t.exchange.Event(t.out, e)
		return err
	})
	switch {
	case garbled != nil:
		t.err = fmt.Errorf("%w: %w", ErrGarbage, garbled)
	case errors.Is(err, io.EOF):
		if t.out, t.err = t.exchange.End(t.out); t.err == nil {
			t.err = io.EOF
		}
	default:
		t.err = err
	}
}
