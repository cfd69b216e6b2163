package dataset

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/text/fold"
)

// A turn is one message of a conversation.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// A chat is an exchange as the test knows it: what was really said, and in which conversation.
type chat struct {
	talk     int
	messages []turn // the system prompt first
	reply    string
	finish   string
	trace    string
	rewrite  bool // the JSON is written in another way than usual
}

// spoiled reports whether the exchange is to be dropped for what it is.
func (c *chat) spoiled() bool {
	return c.finish != "stop" || strings.TrimSpace(c.reply) == ""
}

// words is all that is said, but for the system prompt.
func (c *chat) words() string {
	var all strings.Builder
	for _, m := range c.messages[1:] {
		all.WriteString(m.Content + "\n")
	}
	return all.String() + c.reply
}

// within reports whether c is, or is an earlier turn of, other.
func (c *chat) within(other *chat) bool {
	n := len(c.messages)
	switch {
	case n > len(other.messages) || !slices.Equal(c.messages, other.messages[:n]):
		return false
	case n == len(other.messages):
		return c.reply == other.reply
	}
	return other.messages[n] == turn{"assistant", c.reply}
}

func (c *chat) exchange(t testing.TB, at int) logbook.Exchange {
	t.Helper()
	messages, err := json.Marshal(c.messages)
	if err != nil {
		t.Fatal(err)
	}
	response, err := json.Marshal(turn{"assistant", c.reply})
	if err != nil {
		t.Fatal(err)
	}
	if c.rewrite {
		messages = []byte(strings.ReplaceAll(string(messages), `"role":`, " \"role\" :\n"))
		response = fmt.Appendf(nil, `{"annotations":[],"content":%q,"role":"assistant"}`, c.reply)
	}
	chain, err := fold.Keys(messages, response)
	if err != nil {
		t.Fatal(err)
	}
	return logbook.Exchange{
		At: clock.Time(at + 1), ID: fmt.Sprint("log_", at), Segment: "none", FinishReason: c.finish, TraceID: c.trace,
		Chain: chain.Bytes(), Messages: messages, Response: response,
	}
}

// inMemory is exchanges that are held in memory, in the place of a logbook.Scan.
type inMemory []logbook.Exchange

func (s inMemory) Len() int { return len(s) }

func (s inMemory) Facts(ctx context.Context) iter.Seq2[*logbook.Exchange, error] {
	return s.Chains(ctx)
}

func (s inMemory) Chains(context.Context) iter.Seq2[*logbook.Exchange, error] {
	return func(yield func(*logbook.Exchange, error) bool) {
		for i := range s {
			if !yield(&s[i], nil) {
				return
			}
		}
	}
}

func (s inMemory) Texts(_ context.Context, which []int) iter.Seq2[*logbook.Exchange, error] {
	return func(yield func(*logbook.Exchange, error) bool) {
		for _, i := range which {
			if !yield(&s[i], nil) {
				return
			}
		}
	}
}

// A generator makes logs as they are: many alike, some spoiled, conversations that go on and branch, runs of agents.
type generator struct {
	*rand.Rand
	vocabulary int
	topics     [][]string // texts that others are edits of
}

func newGenerator(seed uint64) *generator {
	w := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), vocabulary: 200}
	for range 1 + w.IntN(6) {
		w.topics = append(w.topics, w.words(20+w.IntN(60)))
	}
	return w
}

func (w *generator) words(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("w%d", w.IntN(w.vocabulary))
	}
	return all
}

// text is new, or one of the topics with some words edited, moved or lost.
func (w *generator) text() string {
	if w.IntN(3) == 0 {
		return strings.Join(w.words(1+w.IntN(30)), " ")
	}
	text := slices.Clone(w.topics[w.IntN(len(w.topics))])
	for range w.IntN(8) {
		switch at := w.IntN(len(text)); w.IntN(3) {
		case 0:
			text[at] = w.words(1)[0]
		case 1:
			text = slices.Insert(text, at, w.words(1)...)
		case 2:
			text = slices.Delete(text, at, at+1)
		}
		if len(text) == 0 {
			text = w.words(3)
		}
	}
	return strings.Join(text, " ")
}

// questions are the messages before each answer within the exchange, the response included.
func (c *chat) questions() []string {
	all := []string{fmt.Sprint(c.messages)}
	for i, m := range c.messages {
		if m.Role == "assistant" {
			all = append(all, fmt.Sprint(c.messages[:i]))
		}
	}
	return all
}

// logs are some exchanges in no order. A conversation whose first turn is not among them begins like no other.
func (w *generator) logs(rewrite bool) []*chat {
	var all []*chat
	for talk := range 3 + w.IntN(25) {
		system := turn{"system", []string{"You are helpful.", "You are terse. " + strings.Repeat("Be brief. ", 20)}[w.IntN(2)]}
		open, filtered := [][]turn{{system, {"user", w.text()}}}, w.IntN(4) == 0
		if filtered {
			open[0][1].Content += fmt.Sprint(" talk", talk)
		}
		if w.IntN(5) == 0 && len(all) > 0 { // the same again, of another task
			same := *all[len(all)-1]
			same.talk, same.trace = -1-talk, ""
			same.messages = slices.Clone(same.messages)
			same.messages[0].Content += " And quick."
			all = append(all, &same)
		}
		for step := 0; len(open) > 0 && step < 8; step++ {
			messages := open[0]
			open = open[1:]
			c := &chat{talk: talk, messages: messages, reply: w.text(), finish: "stop"}
			switch w.IntN(12) {
			case 0:
				c.finish = "length"
			case 1:
				c.finish = "content_filter"
			case 2:
				c.reply = []string{"", "  "}[w.IntN(2)]
			}
			if w.IntN(4) == 0 {
				c.trace = fmt.Sprint("trace", w.IntN(12))
			}
			if step > 0 && w.IntN(4) > 0 || step == 0 && !filtered {
				all = append(all, c)
			}
			if w.IntN(6) == 0 && (step > 0 || !filtered) { // the same question, answered again
				other := *c
				other.reply, other.trace, other.rewrite = w.text(), "", rewrite
				all = append(all, &other)
			}
			if w.IntN(6) == 0 && (step > 0 || !filtered) {
				again := *c
				again.rewrite = rewrite
				all = append(all, &again)
			}
			for range []int{0, 0, 1, 1, 2}[w.IntN(5)] {
				open = append(open, append(slices.Clone(messages), turn{"assistant", c.reply}, turn{"user", w.text()}))
			}
		}
	}
	w.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func exchangesOf(t testing.TB, all []*chat) inMemory {
	t.Helper()
	s := make(inMemory, len(all))
	for i, c := range all {
		s[i] = c.exchange(t, len(all)-i)
	}
	return s
}
