package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/plane/gateway/plan"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/text/sse"
)

// A reading is what the relay makes of a stream's events.
type reading struct {
	Shown     []string
	Content   []bool
	Delivered string
	Finished  bool
	Failed    bool
	Matched   int // events that matched the template
}

// newRelay returns a relay of a chat whose caller asks for usage, or not.
func newRelay(usage bool) *relay {
	r := &run{request: &request.Request{Endpoint: request.Chat, Parsed: request.Parsed{IncludeUsage: usage}}}
	r.bill.model = &plan.Candidate{Model: &live.Model{Provider: &live.Provider{}}}
	return &relay{run: r, format: &chatFormat.stream}
}

// readEvents reads events one by one, with the template or always by decoding.
func readEvents(events []string, usage, decode bool) (r reading) {
	s := newRelay(usage)
	for _, event := range events {
		if decode {
			s.template = nil
		}
		data := []byte(event)
		if s.template != nil {
			if _, ok := s.template.Match(data); ok {
				r.Matched++
			}
		}
		s.pending = s.pending[:0]
		effect, failed := chatEvent(s, sse.Event{Data: data})
		r.Shown, r.Content = append(r.Shown, string(s.pending)), append(r.Content, effect.content)
		for i := range data {
			data[i] = 'x' // the buffer is reused afterwards
		}
		if failed != nil {
			r.Failed = true
			break
		}
	}
	r.Delivered, r.Finished = string(s.run.bill.delivered), s.finished
	return r
}

var (
	eventTexts = rapid.OneOf(
		rapid.SampledFrom([]string{" token", "", "a", "Ω", "日本", `\n`, `\"`, `\u00e9`, `\\`, "é", "\xff", "tab\there", `"},"delta":{"content":"x`, "0123456789", " "}),
		rapid.StringMatching(`[a-z ]{1,8}`))
	eventShapes = []string{
		`{"id":"1","choices":[{"index":0,"delta":{"content":"%s"},"logprobs":null,"finish_reason":null}],"usage":null}`,
		`{"id":"1","usage":null,"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
		`{"usage":null,"id":"1","choices":[{"index":0,"delta":{"content":"%s"}}]}`,
		`{"id":"1","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"obfuscation":"%s"}`,
		`{"obfuscation":"%s","choices":[{"delta":{"content":"%s"},"index":0}],"usage":null}`,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"%s"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"%s"}}],"usage":null}`,
		`{"choices":[{"index":0,"delta":{"content":"%s","reasoning":"%s"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"}},{"index":1,"delta":{"content":"%s"}}]}`,
		`{"choices":[{"index":1,"delta":{"content":"%s"},"finish_reason":"stop"}],"usage":null}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]}}]}`,
		`{"Choices":[{"index":0,"delta":{"content":"no"}}],"choices":[{"index":0,"delta":{"content":"%s"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"},"Delta":{"content":"other"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
		`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
		`{"choices":[{"index":0,"delta":{"content":"%s"}}],"x":"%s"}`,
		`{"choices":[ {"index":0,"delta":{"content":"%s"},"finish_reason":"%s"} ],"usage":null,"error":null}`,
		`{"error":{"message":"%s"}}`,
		`{"choices":["{%s}"]}`,
		`{"choices":[{"finishReason":"%s","delta":{"content":"a"}}]}`,
		`{"choices":[{"in-dex":7,"delta":{"content":"%s"}}]}`,
		`{"choices":null,"u_s_a_g_e":{"prompt_tokens":3}}`,
	}
)

// drawEvent returns an event of a shape.
func drawEvent(t *rapid.T, shape string) string {
	texts := make([]any, strings.Count(shape, "%s"))
	for i := range texts {
		texts[i] = eventTexts.Draw(t, "text")
	}
	return fmt.Sprintf(shape, texts...)
}

func TestThePlainChunkReaderAgreesWithTheDecoder(t *testing.T) {
	plain := 0
	rapid.Check(t, func(t *rapid.T) {
		event := []byte(drawEvent(t, rapid.SampledFrom(eventShapes).Draw(t, "shape")))
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			at := rapid.IntRange(0, len(event)-1).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				event[at] = rapid.SampledFrom([]byte(`{}[]",:\ 0aA-_.`)).Draw(t, "byte")
			case 1:
				event = slices.Delete(event, at, at+1)
			case 2:
				event = slices.Insert(event, at, rapid.SampledFrom([]byte("{}[]\",:\\ 1tn\n")).Draw(t, "byte"))
			}
		}
		var got, want answer.Chunk
		failed, wrong := got.Read(event), lenient.Decode(event, &want)
		if got.Plain {
			plain++
		}
		if (failed == nil) != (wrong == nil) {
			t.Fatalf("%q: %v, and decoded: %v", event, failed, wrong)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(answer.Chunk{}, "Delta", "Plain"), cmpopts.EquateEmpty()); failed == nil && diff != "" {
			t.Fatalf("%q\n%s", event, diff)
		}
	})
	if plain == 0 {
		t.Error("no event was ever read by the plain reader")
	}
}

func TestAnEventThatMatchesTheTemplateIsReadAsIfItWereDecoded(t *testing.T) {
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		var events []string
		few := rapid.SliceOfN(rapid.SampledFrom(eventShapes), 1, 2).Draw(t, "shapes")
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			events = append(events, drawEvent(t, rapid.SampledFrom(few).Draw(t, "shape")))
		}
		usage := rapid.Bool().Draw(t, "usage")
		got, want := readEvents(events, usage, false), readEvents(events, usage, true)
		matched += got.Matched
		got.Matched = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q\n%s", events, diff)
		}
	})
	if matched == 0 {
		t.Error("no event ever matched a template")
	}
}

// Taking matching events without decoding gives the same as reading them one by one, whatever stands between them and
// wherever the stream is cut.
func TestMatchingEventsGiveTheSameAsReadingOneByOne(t *testing.T) {
	fresh := func(usage bool) *relay {
		s := newRelay(usage)
		s.run.response.begun = true
		return s
	}
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		var wire []byte
		few := rapid.SliceOfN(rapid.SampledFrom(eventShapes), 1, 2).Draw(t, "shapes")
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			event := drawEvent(t, rapid.SampledFrom(few).Draw(t, "shape"))
			frames := []string{"data: %s\n\n", "data: %s\n\n", "data: %s\n\n", "data:%s\n\n", "data: %s\r\n\r\n", ": ping\n\ndata: %s\n\n", "event: x\ndata: %s\n\n", "data: %s\n"}
			wire = fmt.Appendf(wire, rapid.SampledFrom(frames).Draw(t, "frame"), event)
		}
		usage := rapid.Bool().Draw(t, "usage")

		want := fresh(usage)
		var wrong *failure
		broken := want.events.Feed(wire, func(e sse.Event) error {
			if want.template = nil; wrong == nil && !want.ended {
				wrong = want.takeEvent(e)
			}
			return nil
		})
		got := fresh(usage)
		var failed *failure
		for rest := wire; len(rest) > 0 && failed == nil; {
			n := min(len(rest), rapid.IntRange(1, 400).Draw(t, "piece"))
			if end := bytes.Index(rest, []byte("\n\n")); end >= 0 && rapid.Bool().Draw(t, "whole") {
				n = end + 2
			}
			piece := bytes.Clone(rest[:n])
			if got.template != nil && got.events.AtBoundary() && got.matches(piece) {
				matched++
			}
			failed = got.take(piece)
			for i := range piece {
				piece[i] = 'x'
			}
			rest = rest[n:]
		}
		if (failed == nil) != (wrong == nil && broken == nil) {
			t.Fatalf("%q: %v, and one by one: %v, %v", wire, failed, wrong, broken)
		}
		if failed != nil {
			return
		}
		if string(got.pending) != string(want.pending) || string(got.run.bill.delivered) != string(want.run.bill.delivered) || got.finished != want.finished || got.content != want.content {
			t.Fatalf("%q\nshown %q, %q\nand one by one %q, %q", wire, got.pending, got.run.bill.delivered, want.pending, want.run.bill.delivered)
		}
	})
	if matched == 0 {
		t.Error("no piece ever began with a matching event")
	}
}

// matches reports whether a piece begins with an event that matches the template.
func (s *relay) matches(piece []byte) bool {
	_, size := s.template.Next(piece)
	return size > 0
}

func TestMostEventsOfAStreamMatchTheTemplate(t *testing.T) {
	var events []string
	for i := range 50 {
		events = append(events, fmt.Sprintf(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" word%d"},"finish_reason":null}],"usage":null,"obfuscation":"%d"}`, i, i*i))
	}
	if got := readEvents(events, false, false); got.Matched != len(events)-1 || strings.Contains(strings.Join(got.Shown, ""), "usage") {
		t.Errorf("%d of %d, the first shown as %s", got.Matched, len(events), got.Shown[1])
	}
}
