package upstream_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"sovereign/internal/base/fault"
	"sovereign/internal/live"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/upstream"
)

// upperCase is a dialect in upper case, whose streams end with END.
type upperCase struct{}

func (upperCase) NewExchange(r *upstream.Request) (upstream.Exchange, error) {
	text := strings.Join([]string{string(r.Body[0])}, "")
	if strings.Contains(text, "whisper") {
		return nil, fault.Invalid("whisper", "cannot be shouted")
	}
	return &upperCaseExchange{text: strings.ToUpper(text)}, nil
}

func (upperCase) ErrorAnswer(status int, body []byte) (int, []byte) {
	return status + 1, []byte(strings.ToLower(string(body)))
}

type upperCaseExchange struct {
	text  string
	ended bool
}

func (s *upperCaseExchange) Request() (string, []byte) { return "/shout", []byte(s.text) }

func (s *upperCaseExchange) Answer(body []byte) ([]byte, error) {
	if strings.Contains(string(body), "MUMBLE") {
		return nil, errors.New("it mumbles")
	}
	return []byte(strings.ToLower(string(body))), nil
}

func (s *upperCaseExchange) Event(to []byte, e sse.Event) ([]byte, error) {
	switch string(e.Data) {
	case "MUMBLE":
		return to, errors.New("it mumbles")
	case "PAUSE":
		return to, nil
	case "END":
		s.ended = true
	}
	return append(to, "data: "+strings.ToLower(string(e.Data))+"\n\n"...), nil
}

func (s *upperCaseExchange) End(to []byte) ([]byte, error) {
	if !s.ended {
		return to, io.ErrUnexpectedEOF
	}
	return append(to, "data: bye\n\n"...), nil
}

// cannedSender answers every request with the same response.
type cannedSender struct {
	response upstream.Response
	sent     *upstream.Request
	closed   int
}

func (c *cannedSender) Send(_ context.Context, r *upstream.Request) (*upstream.Response, error) {
	c.sent = r
	response := c.response
	return &response, nil
}

func (c *cannedSender) Close() { c.closed++ }

func always(*upstream.Request) bool { return true }

func translate(t *testing.T, status int, kind string, body io.Reader, stream bool) (*upstream.Response, string, error) {
	t.Helper()
	inner := &cannedSender{response: upstream.Response{Status: status, ContentType: kind, Body: io.NopCloser(body)}}
	response, err := upstream.NewTranslator(upperCase{}, inner, always).Send(t.Context(), &upstream.Request{
		Model: &live.Model{}, Path: upstream.ChatPath, Body: [][]byte{[]byte("hello")}, Stream: stream,
	})
	if err != nil {
		return nil, "", err
	}
	if inner.sent.Path != "/shout" || string(inner.sent.Body[0]) != "HELLO" {
		t.Errorf("%s %s was sent", inner.sent.Path, inner.sent.Body)
	}
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

const eventStream = "text/event-stream"

func TestAnAnswerIsTranslatedHoweverItArrives(t *testing.T) {
	stream := "data: ONE\n\n: quiet\ndata: PAUSE\n\nevent: x\ndata: TWO\n\ndata: END\n\n"
	const want = "data: one\n\ndata: two\n\ndata: end\n\ndata: bye\n\n"
	for name, from := range map[string]io.Reader{
		"whole": strings.NewReader(stream), "by the byte": iotest.OneByteReader(strings.NewReader(stream)),
		"with its end": iotest.DataErrReader(strings.NewReader(stream)),
	} {
		if _, got, err := translate(t, http.StatusOK, eventStream, from, true); err != nil || got != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if _, got, err := translate(t, http.StatusOK, "application/json", iotest.OneByteReader(strings.NewReader("ANSWER")), false); err != nil || got != "answer" {
		t.Errorf("%q %v", got, err)
	}
}

func TestAnIncompleteAnswerIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		stream bool
		kind   string
		want   error
		got    string
	}{
		"a stream without its end":   {"data: ONE\n\n", true, eventStream, io.ErrUnexpectedEOF, "data: one\n\n"},
		"a stream within an event":   {"data: ONE\n\ndata: EN", true, eventStream, io.ErrUnexpectedEOF, "data: one\n\n"},
		"a stream that says rubbish": {"data: ONE\n\ndata: MUMBLE\n\n", true, eventStream, upstream.ErrInvalidAnswer, "data: one\n\n"},
		"no stream at all":           {"rubbish\n", true, eventStream, upstream.ErrInvalidAnswer, ""},
		"an answer, not a stream":    {"{}", true, "application/json", upstream.ErrInvalidAnswer, ""},
		"rubbish":                    {"MUMBLE", false, "application/json", upstream.ErrInvalidAnswer, ""},
	} {
		if _, got, err := translate(t, http.StatusOK, c.kind, strings.NewReader(c.body), c.stream); !errors.Is(err, c.want) || got != c.got {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

func TestAnErrorAnswerIsTranslated(t *testing.T) {
	response, got, err := translate(t, http.StatusTooManyRequests, "text/plain", strings.NewReader("NO"), true)
	if err != nil || response.Status != http.StatusTooManyRequests+1 || got != "no" || response.ContentType != "application/json" {
		t.Errorf("%+v %q %v", response, got, err)
	}
}

func TestARefusedRequestIsNotSent(t *testing.T) {
	inner := &cannedSender{}
	s := upstream.NewTranslator(upperCase{}, inner, always)
	_, err := s.Send(t.Context(), &upstream.Request{Body: [][]byte{[]byte("whisper")}})
	var f *fault.Fault
	if !errors.As(err, &f) || f.Field != "whisper" || inner.sent != nil {
		t.Errorf("%v, and %v was sent", err, inner.sent)
	}
	if s.Close(); inner.closed != 1 {
		t.Error("the connections stay open")
	}
}

func TestOtherRequestsAreNotTranslated(t *testing.T) {
	inner := &cannedSender{response: upstream.Response{Status: http.StatusOK, Body: io.NopCloser(strings.NewReader("MUMBLE"))}}
	s := upstream.NewTranslator(upperCase{}, inner, func(r *upstream.Request) bool { return r.Path == upstream.ResponsesPath })
	response, err := s.Send(t.Context(), &upstream.Request{Path: upstream.ChatPath, Body: [][]byte{[]byte("whisper")}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(response.Body); string(text) != "MUMBLE" {
		t.Errorf("%s", text)
	}
}
