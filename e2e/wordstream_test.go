package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

// textOf is the text of a stream's events.
func textOf(events []string) string {
	var text strings.Builder
	for _, e := range events {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if json.Unmarshal([]byte(e), &chunk) == nil && len(chunk.Choices) > 0 {
			text.WriteString(chunk.Choices[0].Delta.Content)
		}
	}
	return text.String()
}

// Streams that come word by word share one goroutine. A stream whose caller does not read, whose provider dies or falls
// silent, or whose caller leaves does not disturb the others: each gets every word, in order, and its end.
func TestDrillStreamsThatComeWordByWordDoNotDelayEachOther(t *testing.T) {
	t.Parallel()
	const word = "mock?chunks=150&chunk_delay=6ms&in=10&out=150"
	s, _ := serveMock(t, map[string]string{
		"chat": word, "dies": word + "&die_after=80", "falls-silent": word + "&hang_after=80", "in-bits": word + "&split=40", "with-comments": word + "&ping", "endless": "mock?chunks=200000&text=200000&in=10&out=200000",
	}, "--limits-stall-timeout", "5s")
	c := s.caller()
	var whole struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(c.must(t, chat("mock/chat", "x")).body, &whole); err != nil || len(whole.Choices) != 1 {
		t.Fatal(err)
	}
	want := whole.Choices[0].Message.Content
	half := strings.Join(strings.SplitAfter(want, " ")[:80], "")
	for range 3 {
		s.neverRead(t, "mock/endless")
	}
	eventually(t, "the streams that are not read run", func() bool { return s.wallet(t, "default").Held > 0 })
	time.Sleep(500 * time.Millisecond) // until the buffers between provider and caller are full

	var all sync.WaitGroup
	for _, test := range []struct {
		model, outcome, text string
		streams              int
		stop                 func([]string) bool
	}{
		{"chat", "finished", want, 40, nil},
		{"in-bits", "finished", want, 5, nil},
		{"with-comments", "finished", want, 5, nil},
		{"dies", "died", half, 5, nil},
		{"falls-silent", "died", half, 5, nil},
		{"chat", "left", "", 5, func(events []string) bool { return len(events) > 80 }},
	} {
		for range test.streams {
			all.Go(func() {
				a, err := c.post(context.Background(), "/v1/chat/completions", chat("mock/"+test.model, "y", `"stream":true`), test.stop)
				if err != nil {
					t.Error(err)
					return
				}
				if got := textOf(a.events); test.text != "" && got != test.text {
					t.Errorf("%s: %d bytes of text, want %d; it ends with %q", test.model, len(got), len(test.text), a.events[len(a.events)-1])
				}
				if broken := strings.Contains(a.events[len(a.events)-1], `"error"`); broken != (test.outcome == "died") || a.done != (test.outcome == "finished") {
					t.Errorf("%s ends with %s", test.model, a.events[len(a.events)-1])
				}
				eventually(t, test.model+" is charged", func() bool { return s.usage(t, "default")[a.id()].Outcome == test.outcome })
			})
		}
	}
	began := time.Now()
	all.Wait()
	if took := time.Since(began); measured() && took > 20*time.Second { // the words alone take one
		t.Errorf("all streams took %v", took)
	}
	if s.wallet(t, "default").Held == 0 {
		t.Error("the streams that are not read were given up: they were to stay open")
	}
}
