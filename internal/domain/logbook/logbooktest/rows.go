// Package logbooktest makes logged rows like those of a busy month, for tests and measurements.
package logbooktest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/text/fold"
	"sovereign/internal/text/segment"
)

// A Source makes rows of a month, the oldest first: 12 models, 200 tags and 40 prompts. The same source makes the same
// rows.
type Source struct {
	Random *rand.Rand
	Made   int

	ws   tenant.ID
	tags *rand.Zipf
	from clock.Time
	step clock.Time
}

// New returns a source of so many rows of a workspace, the last of which is at a time.
func New(ws tenant.ID, rows int, until clock.Time) *Source {
	random := rand.New(rand.NewPCG(1, 2)) // the same rows each time
	const month = clock.Time(30 * 24 * time.Hour / time.Microsecond)
	return &Source{
		Random: random, ws: ws, tags: rand.NewZipf(random, 1.2, 1, 199), from: until - month,
		step: month / clock.Time(rows),
	}
}

// prompts are forty prompts that have no words in common.
var prompts = func() (all []string) {
	random := rand.New(rand.NewPCG(3, 4)) // the same prompts each time
	for range 40 {
		var words []string
		for range 30 {
			var word []byte
			for range 7 {
				word = append(word, byte('a'+random.IntN(26)))
			}
			words = append(words, string(word))
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}()

var finishes = []string{
	"stop", "stop", "stop", "stop", "stop", "stop", "stop", "tool_calls", "length", "content_filter",
}

// Next returns the next row, which expires after a time.
func (m *Source) Next(retention time.Duration) *capture.Row {
	m.Made++
	prompt := fmt.Sprintf("%s Today is day %d.", prompts[m.Random.IntN(len(prompts))], m.Random.IntN(40))
	messages := fmt.Sprintf(`[{"role":"system","content":%q},{"role":"user","content":"Question %d: %s"}]`,
		prompt, m.Made, strings.Repeat("what is it ", m.Random.IntN(20)))
	response := fmt.Sprintf(`{"role":"assistant","content":"Answer %d"}`, m.Made)
	chain, err := fold.Keys([]byte(messages), []byte(response))
	if err != nil {
		panic(err)
	}
	r := &capture.Row{
		ID: fmt.Sprintf("log_%026d", m.Made), Workspace: m.ws, Key: "key_1", Request: fmt.Sprintf("req_%026d", m.Made),
		At: m.from + clock.Time(m.Made)*m.step, Model: fmt.Sprintf("provider/model-%d", m.Random.IntN(12)),
		Requested: "fast", Provider: "provider", Exact: segment.Exact(prompt),
		Finish: finishes[m.Random.IntN(len(finishes))], Cached: m.Random.IntN(10) == 0, Prompt: 100, Completion: 20,
		Cost: money.Nano(1000), Chain: chain.Bytes(), Messages: []byte(messages), Response: []byte(response),
	}
	if m.Random.IntN(2) == 0 {
		r.Tag = fmt.Sprintf("task-%d", m.tags.Uint64())
	}
	if m.Random.IntN(5) == 0 {
		r.Trace = fmt.Sprintf("run-%d", m.Made/20)
	}
	r.Expires = r.At.Add(retention)
	return r
}
