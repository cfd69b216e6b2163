package gateway

import (
	"bytes"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
	"sovereign/internal/text/token"
)

// An Outcome is how a request ended, for its money.
type Outcome string

// The outcomes. A process that dies leaves its requests to the ledger, which calls them killed.
const (
	Finished Outcome = "finished" // the provider said so
	Left     Outcome = "left"     // the caller left after content
	Died     Outcome = "died"     // the provider broke off after content
	Nothing  Outcome = "nothing"  // was delivered
)

// settle ends a request's money, whatever became of it: the one place where an outcome becomes a charge.
//
//	finished, usage reported   what the provider reports; 0 is 0
//	finished, nothing reported input and output, counted by us
//	left, died                 input and what was delivered, counted by us
//	nothing                    nothing
//
// What the product itself asks for is charged by keep, when it is finished and kept.
//
// It returns before what is counted is charged, with the rest as a function for when the caller has its last byte; by
// then the journal holds a charge that is never too high. An error says that nothing could be recorded: whoever has
// delivered something all the same calls the rest too, and it is owed.
func (r *run) settle(o Outcome) (later func(), err error) {
	none := func() {}
	switch {
	case o == Nothing && r.tab.Opened(): // recorded, and then not delivered after all
		if r.tab.Settle(string(o), live.Usage{}, true) != nil {
			r.tab.Owe(string(o), live.Usage{}, true)
		}
		return none, nil
	case o == Nothing:
		r.tab.Drop()
		return none, nil
	case o == Finished && r.reported != nil:
		err := r.tab.Settle(string(o), *r.reported, false)
		if err == nil {
			r.settled(o, *r.reported)
			return none, nil
		}
		return func() {
			r.tab.Owe(string(o), *r.reported, false)
			r.settled(o, *r.reported)
		}, err
	}
	err = r.tab.Deliver(r.sofar())
	return func() { r.charge(o, r.count(), true) }, err
}

// charge settles what an answer used that somebody has, and owes what cannot be recorded.
func (r *run) charge(o Outcome, used live.Usage, counted bool) {
	if r.tab.Settle(string(o), used, counted) != nil {
		r.tab.Owe(string(o), used, counted)
	}
	r.settled(o, used)
}

// sofar is what was surely used: never more than the real count.
func (r *run) sofar() live.Usage {
	return live.Usage{Input: r.ask.tokens().Low, Output: token.Text(r.delivered).Low, Searches: r.searches()}
}

// searches is how many were surely made, where the model is paid for by them.
func (r *run) searches() int64 {
	if r.model.price.Search == 0 {
		return 0
	}
	return (int64(r.ask.elements) + perSearch - 1) / perSearch
}

// maxCounted bounds what a tokenizer is given: a longer body is charged what it surely is.
const maxCounted = 8 << 20

// count counts what was used with a tokenizer. It takes milliseconds for a long prompt, so only a few count at once.
func (r *run) count() live.Usage {
	if len(r.ask.Body) > maxCounted {
		return r.sofar()
	}
	r.gateway.counting <- struct{}{}
	defer func() { <-r.gateway.counting }()
	return live.Usage{Input: countInput(r.gateway.Count, r.ask), Output: r.gateway.Count(string(r.delivered)), Searches: r.searches()}
}

// messageOverhead is what a chat's template adds to each message.
const messageOverhead = 4

// countInput counts the texts of what was asked. Media that are sent as data count nothing: no tokenizer knows them.
func countInput(count func(string) int64, a *Ask) int64 {
	var n int64
	for _, m := range a.prompt() {
		if m.Name == "tools" || m.Name == "response_format" || m.Name == "text" {
			n += count(string(m.Value))
			continue
		}
		texts(m.Value, func(text string) {
			if !isData(text) {
				n += count(text)
			}
		})
	}
	if a.Endpoint.kind == live.Chat {
		n += int64(a.elements) * messageOverhead
	}
	return n
}

// texts hands over every string value of a JSON text, and no name.
func texts(value []byte, each func(string)) {
	decoder := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		kind, length := decoder.StackIndex(decoder.StackDepth())
		name := kind == '{' && length%2 == 0
		t, err := decoder.ReadToken()
		if err != nil {
			return // the end, or what was no JSON: the provider has judged it
		}
		if t.Kind() == '"' && !name {
			each(t.String())
		}
	}
}

// progressEvery is how often a stream's progress is recorded, and so what a killed process may lose of it.
const progressEvery = time.Second

// progress records a stream's first content, and then about once a second what it has delivered. What could not be
// recorded is tried again with the next.
func (r *run) progress() error {
	if r.clock.now.Sub(r.recorded) < progressEvery {
		return nil
	}
	r.recorded = r.clock.now
	return r.tab.Deliver(r.sofar())
}

// isData reports whether a text is a medium in base64.
func isData(text string) bool {
	head, _, found := strings.Cut(text[:min(len(text), 200)], ";base64,")
	return found && strings.HasPrefix(head, "data:")
}
