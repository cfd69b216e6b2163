package anthropic_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"sovereign/internal/wire/upstream"

	"sovereign/internal/base/fault"
	"sovereign/internal/text/sse"
)

// FuzzRequest: any body is translated into a request that the SDK knows completely, or refused with status 400.
func FuzzRequest(f *testing.F) {
	for _, c := range requestCases {
		f.Add([]byte(`{"model":"ours",` + c.ours + `}`))
	}
	for _, c := range refusals {
		f.Add([]byte(`{"model":"ours",` + c.body + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := dialect.NewExchange(request(string(body), false))
		var fault *fault.Fault
		switch {
		case err == nil:
			if _, translated := e.Request(); !bytes.HasPrefix(translated, []byte(`{"model":"claude-opus-4-8"`)) {
				t.Errorf("%s", translated)
			}
		case !errors.As(err, &fault) || fault.Status != 400:
			t.Error(err)
		}
	})
}

// FuzzEvents: for any events, [DONE] is sent at most once, last, and not after an error.
func FuzzEvents(f *testing.F) {
	all, err := filepath.Glob("testdata/*.sse")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range all {
		stream, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		e := newExchange(t)
		var out []byte
		err := new(sse.Reader).Feed(stream, func(event sse.Event) (err error) {
			out, err = e.Event(out, event)
			return err
		})
		ends := bytes.Count(out, []byte("\ndata: [DONE]\n\n"))
		switch {
		case ends > 1, isComplete(e) != (ends == 1):
			t.Errorf("%d ends: %s", ends, out)
		case err == nil && ends == 1 && bytes.Contains(out, []byte(`data: {"error"`)):
			t.Errorf("an end after an error: %s", out)
		}
		_, _ = e.Answer(stream) // it may be anything, and must not panic
		_, _ = dialect.ErrorAnswer(500, stream)
	})
}

// isComplete reports whether the stream was complete.
func isComplete(e upstream.Exchange) bool {
	_, err := e.End(nil)
	return err == nil
}
