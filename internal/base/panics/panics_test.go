package panics

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestAPanicIsLoggedWithItsStackCountedAndReturned(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	before := Count()
	err := Call(log, "the test", failing, "row", 7)
	var contained *Error
	if !errors.As(err, &contained) || contained.Value != "boom" || err.Error() != "panic: boom" {
		t.Errorf("%v", err)
	}
	func() {
		defer Contain(log, "another")
		_ = failing()
	}()
	if n := Count() - before; n != 2 {
		t.Errorf("%d were counted", n)
	}
	for _, want := range []string{"in=\"the test\"", "row=7", "in=another", "panics.failing"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, &out)
		}
	}
}

// A panic that repeats is counted each time, and does not fill the log.
func TestARepeatedPanicDoesNotFillTheLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	before := Count()
	for range 10 * maxLogged {
		_ = Call(log, "the test", failing)
	}
	if n := Count() - before; n != 10*maxLogged || strings.Count(out.String(), "\n") > 2*maxLogged {
		t.Errorf("%d were counted, and %d lines logged", n, strings.Count(out.String(), "\n"))
	}
	logged.count = 0
}

func failing() error { panic("boom") }

func TestWithoutAPanicCallReturnsTheError(t *testing.T) {
	want := errors.New("plain")
	before := Count()
	if err := Call(nil, "the test", func() error { return want }); !errors.Is(err, want) || Count() != before {
		t.Errorf("%v", err)
	}
}
