package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/live"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/till"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/upstream"
)

// A run is one request on the road.
type run struct {
	gateway  *Gateway
	ask      *Ask
	settings *Settings
	standard int64 // most tokens of output when the caller names none; 0 for the model's own
	fleet    *upstream.Fleet
	plan     plan
	room     [1]candidate // for its models, mostly
	memory   memory
	tab      till.Tab
	out      Writer

	held  account // what is translated in this try
	in    source  // the answer of this try
	term  term    // of the provider's side
	first attempt // which most requests have no other after

	model     candidate
	cached    string      // hit or miss, where answers are remembered
	served    string      // the model that an answer from memory was given by
	judged    bool        // the try's circuit has heard how it went
	allowed   time.Time   // when the circuit let the try pass
	reported  *live.Usage // by the provider; nil is not 0
	delivered []byte      // text of the answer that the caller was sent
	recorded  time.Time   // when progress was last recorded
	finish    string      // reason of the last choice that finished
	outcome   Outcome
	used      live.Usage

	logs   bool          // the exchange is to be logged
	begins time.Duration // after which the caller was sent the first content

	writing sync.Mutex // the answer, against pings
	begun   bool       // the head of the answer is written

	clock stopwatch
}

// An attempt is what a provider is asked in a try, for as long as that lasts. Who speaks with the provider may know it for longer.
type attempt struct {
	life.Life
	request upstream.Request
}

// Why a provider's side ends.
var (
	errLeft     = errors.New("the caller left")
	errSilent   = errors.New("the provider is silent")
	errTooLong  = errors.New("the request took too long")
	errStopping = errors.New("the server is stopping")
)

// Serve answers one request. A refusal is returned when nothing of an answer was written; everything else is in the
// answer itself. When Serve returns, the request's money is settled, or owed.
func (g *Gateway) Serve(caller context.Context, ask *Ask, out Writer) (err error) {
	g.running.Add(1)
	defer g.running.Add(-1)
	r := &run{gateway: g, ask: ask, out: out, settings: g.settings.Load(), fleet: g.Fleet(), clock: start(), judged: true}
	r.standard = cmp.Or(ask.own.most(), g.Workspaces.Of(ask.Caller.Workspace).DefaultMaxTokens, r.settings.DefaultMaxTokens)
	defer func() { g.Metrics.finish(r, caller, err) }()
	if err := ask.read(); err != nil {
		return err
	}
	if r.plan, err = g.resolve(ask, r.fleet.Catalog, r.room[:0]); err != nil {
		return err
	}
	r.logs = r.wanted()
	if r.recall() {
		return nil
	}
	if r.tab, err = r.hold(); err != nil {
		return err
	}
	defer r.tab.Drop()

	r.term.start(r.clock.now, r.settings.RequestTimeout)
	defer r.term.stop()
	defer life.AfterFunc(caller, r.left).Stop()
	g.runs.add(&r.term)
	defer g.runs.remove(&r.term)
	defer r.judge(nil)
	if err = r.try(); err == nil && ask.own != nil { //nolint:contextcheck // a run has its own life: it ends on purpose, not by accident
		r.keep()
	}
	return err
}

// hold sets the worst case aside: the dearest of every model that may run.
func (r *run) hold() (till.Tab, error) {
	worst := r.worst()
	charge := journal.Charge{
		Request: r.ask.ID, Workspace: r.ask.Caller.Workspace, Key: r.ask.Caller.Key, Route: r.ask.Endpoint.Name,
		Requested: r.ask.model, Alias: r.plan.alias,
	}
	tab, err := r.gateway.Till.Open(charge, worst)
	if err == nil {
		return tab, nil
	}
	var short *till.Short
	if errors.As(err, &short) {
		return till.Tab{}, r.cannotPay(worst, short.Free)
	}
	return till.Tab{}, err
}

// left ends the request because its caller is gone.
func (r *run) left() { r.term.End(errLeft) }

// worst is what the request may cost. To measure a prompt takes time, of a long one more than to send it, and saves nothing where the
// wallet has plenty: there its bytes are held for, of which no token has less than one. Media alone may be more tokens than bytes.
func (r *run) worst() money.Nano {
	if r.ask.Endpoint != Rerank && !r.ask.seen(media) {
		if rough := r.dearest(token.Most(len(r.ask.Body))); rough <= r.gateway.Till.Free(r.ask.Caller.Workspace)/plenty {
			return rough
		}
	}
	return r.dearest(r.ask.tokens().High)
}

// plenty is how often a wallet could pay for it.
const plenty = 100

// dearest is what the dearest of the models that may run can cost, for a prompt of at most so many tokens.
func (r *run) dearest(prompt int64) (worst money.Nano) {
	for _, c := range r.plan.arms {
		worst = max(worst, c.price.Worst(r.input(c.Model, prompt), r.output(c.Model), r.ask.searches()))
	}
	return worst
}

// input is the most tokens that the request can be, where its prompt is no more than so many: no more than the model takes.
func (r *run) input(m *live.Model, prompt int64) int64 {
	switch {
	case r.ask.stored != "": // it brings more than the caller sent
		return m.ContextWindow
	case m.Kind == live.Chat:
		return min(prompt, m.ContextWindow)
	case m.Kind == live.Rerank: // the question may be counted with every document
		return prompt + int64(r.ask.elements)*r.ask.query
	default:
		return prompt // of an array of texts, each may fill the window
	}
}

// output is the most tokens that can come back.
func (r *run) output(m *live.Model) int64 {
	return r.ask.n * min(cmp.Or(r.ask.limit, r.standard, m.MaxOutput), m.MaxOutput)
}

// cannotPay refuses, and names a max_tokens that the wallet could cover.
func (r *run) cannotPay(worst, free money.Nano) error {
	most := int64(-1)
	for _, c := range r.plan.arms {
		input := r.input(c.Model, r.ask.tokens().High)
		if r.ask.limit == 0 {
			input += naming
		}
		fits := affordable(c.price, input, r.ask.n, c.MaxOutput, free)
		if most < 0 || fits < most {
			most = fits
		}
	}
	message := fmt.Sprintf("the wallet has $%s free, and this request could cost $%s", free, worst)
	if most > 0 {
		message += fmt.Sprintf("; with %s of at most %d it would fit", r.ask.Endpoint.limit(r.plan.order[0].Model), most)
	}
	return fault.InsufficientBalance.New("%s", message)
}

// naming is what a body grows by that names a maximum, in tokens at most.
const naming = 32

// affordable is the largest output per choice, up to most, whose worst case is free.
func affordable(p live.Price, input, n, most int64, free money.Nano) int64 {
	low, high := int64(0), most
	for low < high {
		middle := low + (high-low+1)/2
		if p.Worst(input, n*middle, 0) <= free {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// How retries are spaced.
const (
	firstPause   = 250 * time.Millisecond
	maxPause     = 5 * time.Second
	patientUntil = 5 * time.Second // a longer Retry-After is the caller's to wait for
)

// try tries each model of the plan in turn, and the same again where that may help, until one has begun to answer or
// none is left. All of them stand under one hold. A fallback that cannot express the request is passed over; the model
// that was asked for is not.
func (r *run) try() error {
	var last *failure
	for i, c := range r.plan.order {
		failed := r.persist(c)
		if failed == nil {
			return nil
		}
		if failed.class != unfit || i == 0 {
			last = failed
		}
		if !last.next || i == 0 && failed.class == unfit || r.term.Cause() != nil {
			break
		}
	}
	if cause := r.term.Cause(); cause != nil {
		last.fault = ending(cause)
	}
	return last.fault
}

// persist tries one model until it has answered, or trying again would not help.
func (r *run) persist(c candidate) *failure {
	var last *failure
	for attempt := 0; ; attempt++ {
		failed := r.once(c)
		if failed == nil {
			return nil
		}
		if failed.class == shunned && last != nil {
			return last // which opened the circuit, and says more
		}
		last = failed
		r.failed(c, failed)
		if !failed.retry || attempt >= r.settings.Retries || failed.wait > patientUntil || !r.pause(attempt, failed.wait) {
			return failed
		}
	}
}

// failed notes a try that gave no answer. A provider that is down would fill the log: of each kind of failure it gets a
// line every ten seconds.
func (r *run) failed(c candidate, f *failure) {
	r.judge(f)
	if f.class == over || f.class == unfit {
		return // no fault of the provider's
	}
	r.gateway.Metrics.tried(c.Model, f.name)
	if _, ok := r.gateway.lines.Allow(c.ID+" "+f.name, time.Now()); ok {
		r.gateway.Log.Warn("a try failed", "request_id", r.ask.ID, "model", c.ID, "provider", c.Provider.Name, "class", f.name, "err", f.err)
	}
}

// judge tells the circuit of a try's upstream how it went, once. Whatever answers is alive, if only to refuse.
func (r *run) judge(f *failure) {
	if r.judged {
		return
	}
	r.judged = true
	key := r.model.circuit(r.ask.Caller.Workspace)
	switch {
	case f == nil:
		r.gateway.Breaker.Done(key, r.allowed, r.clock.now, true)
	case f.class == broken, f.class == silent:
		if r.gateway.Breaker.Done(key, r.allowed, r.clock.now, false) {
			r.gateway.Log.Warn("a model failed too often, and is left alone for a while", "model", r.model.ID, "provider", r.model.Provider.Name, "own_key", r.model.own != nil)
		}
	case f.class == over, f.class == unfit:
		r.gateway.Breaker.Cancel(key, r.allowed)
	default:
		r.gateway.Breaker.Done(key, r.allowed, r.clock.now, true)
	}
}

// pause waits before the next try: twice as long each time, by a random part, and at least what the provider asks.
func (r *run) pause(attempt int, asked time.Duration) bool {
	most := min(firstPause<<attempt, maxPause)
	wait := time.NewTimer(asked + most/2 + rand.N(most/2))
	defer wait.Stop()
	r.clock.ours()
	defer r.clock.theirs()
	select {
	case <-wait.C:
		return true
	case <-r.term.Done():
		return false
	}
}

// ending is what a caller who is still there is told about an end on purpose.
func ending(cause error) *fault.Fault {
	switch {
	case errors.Is(cause, errStopping):
		return fault.Unavailable.Because(cause, "the server is stopping").In(time.Second)
	default:
		return fault.Timeout.Because(cause, "the request took too long")
	}
}

// once sends the request to a model and relays its answer. Nil says that the caller has an answer, whole or broken off;
// a failure that nothing was written and another try is possible.
func (r *run) once(c candidate) *failure {
	r.clock.ours()
	now := r.clock.now
	if !r.gateway.Breaker.Allow(c.circuit(r.ask.Caller.Workspace), now) {
		err := errors.New("it failed too often of late")
		return &failure{class: shunned, err: err, fault: fault.Upstream.Because(err, "%s is failing with %s, and was not asked", c.Provider.Name, c.ID)}
	}
	r.judged, r.allowed = false, now
	ctx := &r.first
	if ctx.Cause() != nil {
		ctx = new(attempt)
	}
	r.term.try(&ctx.Life, now, r.settings.TryTimeout)
	defer r.term.over(&ctx.Life)
	r.model, r.reported, r.delivered, r.recorded, r.memory.assembly = c, nil, r.delivered[:0], time.Time{}, nil
	r.tab.Serve(c.Model, c.price, c.own != nil)

	r.held = account{budget: r.gateway.Bounds.Buffered}
	defer r.held.back()
	request := &ctx.request
	*request = upstream.Request{
		Model: c.Model, Path: r.ask.Endpoint.Path, BodyRef: r.ask.Lease, Stream: r.ask.stream, ID: r.ask.ID, Credentials: c.own, Reserve: r.held.take,
	}
	request.Body = r.ask.body(request.BodyStorage[:0], c, r.standard)
	response, err := r.fleet.Sender(c.Model).Send(&ctx.Life, request)
	r.clock.theirs()
	if err != nil {
		return r.lost(&ctx.Life, err)
	}
	defer func() { _ = response.Body.Close() }()
	r.in = source{run: r, life: &ctx.Life, from: response.Body, length: response.Length, patience: r.settings.TryTimeout}
	switch {
	case response.Status != http.StatusOK:
		return r.refusal(&r.in, response)
	case r.ask.stream:
		return r.stream(&r.in, response)
	default:
		return r.whole(&r.in)
	}
}

// A source is a provider's answer: every read has its time, and counts as time that was not ours. What a slow caller takes
// between two reads is not the provider's.
type source struct {
	run      *run
	life     *life.Life // of the try
	from     io.Reader
	length   int64 // 0 when it is not known
	patience time.Duration
	heard    bool   // something has come
	buffer   []byte // for what has none of its own
}

// next is what comes next; it is good until the next call.
func (s *source) next() (piece []byte, err error) {
	if s.heard && s.patience > 0 {
		s.run.term.wait(s.run.clock.now, s.patience)
	}
	if from, ok := s.from.(upstream.ChunkReader); ok {
		piece, err = from.Next()
	} else {
		if s.buffer == nil {
			s.buffer = make([]byte, ownBuffer)
		}
		var n int
		n, err = s.from.Read(s.buffer)
		piece = s.buffer[:n]
	}
	s.run.clock.theirs()
	s.heard = s.heard || len(piece) > 0 || err == nil // a translation may have heard what says nothing
	return piece, err
}

// ownBuffer is for bodies that only know how to be read.
const ownBuffer = 8 << 10

// all reads to the end, or up to most bytes, holding what it reads against a budget. What has come in one piece is not copied.
func (s *source) all(most int, held *account) (all []byte, err error) {
	first, err := s.next()
	if err == nil && s.length > 0 && s.length == int64(len(first)) { // nothing, of unknown length, is a sign of life
		return first, nil
	}
	all = append(make([]byte, 0, max(firstRoom, 2*len(first))), first...)
	for err == nil {
		var piece []byte
		if piece, err = s.next(); len(all)+len(piece) > cap(all) {
			more := max(cap(all), len(piece))
			if !held.take(int64(more)) {
				return all, errNoRoom
			}
			all = append(make([]byte, 0, cap(all)+more), all...)
		}
		if all = append(all, piece...); len(all) > most {
			return all[:most], errTooMuch
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// firstRoom is for an answer of unknown length.
const firstRoom = 2 << 10

var errTooMuch = errors.New("it is too long")
