package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sovereign/internal/live"
	"sovereign/internal/text/sse"
)

// translator sends requests in a dialect over another sender.
type translator struct {
	dialect Dialect
	next    Sender
	applies func(*Request) bool
}

// NewTranslator returns a sender that translates the requests for which applies returns true and sends them over next.
// All other requests are passed to next unchanged.
func NewTranslator(d Dialect, next Sender, applies func(*Request) bool) Sender {
	return &translator{dialect: d, next: next, applies: applies}
}

func (t *translator) Close() { t.next.Close() }

// Limits of what is buffered for translation.
const (
	maxAnswer    = 64 << 20
	maxErrorBody = 64 << 10
	maxEvent     = 8 << 20
)

// Send implements Sender.
func (t *translator) Send(ctx context.Context, r *Request) (*Response, error) {
	if !t.applies(r) {
		return t.next.Send(ctx, r)
	}
	if !r.reserve(2 * r.Length()) { // the joined body and the translated one
		return nil, ErrMemoryLimit
	}
	exchange, err := t.dialect.NewExchange(r)
	if err != nil {
		return nil, err
	}
	translated := *r
	var body []byte
	translated.Path, body = exchange.Request()
	translated.Body = [][]byte{body}
	response, err := t.next.Send(ctx, &translated)
	if err != nil {
		return nil, err
	}
	events := strings.HasPrefix(strings.ToLower(response.ContentType), "text/event-stream")
	switch {
	case response.Status != http.StatusOK:
		text, err := r.readAll(response.Body, maxErrorBody)
		if err != nil && !errors.Is(err, errTooLong) {
			text = nil // the status alone is still a valid error answer
		}
		if advisor, ok := t.dialect.(RetryAdvisor); ok && response.RetryAfter == 0 {
			response.RetryAfter = min(max(0, advisor.RetryAfter(text)), maxRetryAfter)
		}
		response.Status, text = t.dialect.ErrorAnswer(response.Status, text)
		response.ContentType, response.Body = "application/json", io.NopCloser(bytes.NewReader(text))
	case r.Stream && !events:
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: a stream was asked for and %q came", ErrInvalidAnswer, response.ContentType)
	case r.Stream:
		response.Body = &streamTranslation{exchange: exchange, from: response.Body, events: sse.Reader{Most: maxEvent}}
	default:
		response.Body = &answerTranslation{request: r, exchange: exchange, from: response.Body}
	}
	return response, nil
}

var errTooLong = errors.New("it is too long")

// ErrMemoryLimit is returned when Request.Reserve refuses memory for a request's bytes.
var ErrMemoryLimit = errors.New("too many bytes in flight")

func (r *Request) reserve(n int64) bool { return r.Reserve == nil || r.Reserve(n) }

// readAll reads up to most bytes and reserves memory as the buffer grows.
func (r *Request) readAll(from io.ReadCloser, most int) ([]byte, error) {
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
			if !r.reserve(int64(cap(all))) {
				return all, ErrMemoryLimit
			}
			all = append(make([]byte, 0, 2*cap(all)), all...)
		}
	}
}

// answerTranslation is the body of an answer that is translated once it has arrived completely.
type answerTranslation struct {
	request  *Request
	exchange Exchange
	from     io.ReadCloser
	text     *bytes.Reader
}

func (a *answerTranslation) Close() error { return a.from.Close() }

func (a *answerTranslation) Read(p []byte) (int, error) {
	if a.text == nil {
		body, err := a.request.readAll(a.from, maxAnswer)
		switch {
		case errors.Is(err, errTooLong):
			return 0, fmt.Errorf("%w: %w", ErrInvalidAnswer, err)
		case err != nil:
			return 0, err
		}
		text, err := a.exchange.Answer(body)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrInvalidAnswer, err)
		}
		a.text = bytes.NewReader(text)
	}
	return a.text.Read(p)
}

// streamTranslation is the body of a stream that is translated event by event.
type streamTranslation struct {
	exchange Exchange
	from     io.ReadCloser
	events   sse.Reader
	buffer   [8 << 10]byte
	out      []byte // translated bytes
	read     int    // how many of them were read
	err      error
}

func (t *streamTranslation) Close() error { return t.from.Close() }

// UsageSoFar implements UsageReporter. Where this dialect reports none, a dialect below it may.
func (t *streamTranslation) UsageSoFar() *live.Usage {
	for _, from := range []any{t.exchange, t.from} {
		if reporter, ok := from.(UsageReporter); ok {
			return reporter.UsageSoFar()
		}
	}
	return nil
}

// Read returns translated bytes before it waits for more. It returns 0, nil when data arrived that translates to
// nothing, which still proves that the connection is alive.
func (t *streamTranslation) Read(p []byte) (int, error) {
	if t.read == len(t.out) && t.err == nil {
		t.fill()
	}
	if t.read == len(t.out) {
		return 0, t.err
	}
	n := copy(p, t.out[t.read:])
	t.read += n
	return n, nil
}

// fill reads once from the provider and translates the complete events.
func (t *streamTranslation) fill() {
	t.out, t.read = t.out[:0], 0
	n, err := t.from.Read(t.buffer[:])
	invalid := t.events.Feed(t.buffer[:n], func(e sse.Event) (err error) {
		t.out, err = t.exchange.Event(t.out, e)
		return err
	})
	switch {
	case invalid != nil:
		t.err = fmt.Errorf("%w: %w", ErrInvalidAnswer, invalid)
	case errors.Is(err, io.EOF):
		if t.out, t.err = t.exchange.End(t.out); t.err == nil {
			t.err = io.EOF
		}
	default:
		t.err = err
	}
}
