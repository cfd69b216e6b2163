package gateway

import (
	"cmp"
	"strings"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/cache"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/deadline"
	"sovereign/internal/plane/gateway/plan"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/wire/chat"
	"sovereign/internal/wire/upstream"
)

// A run is the state of one request while it is served. It is one allocation; its parts point to each other.
type run struct {
	gateway    *Gateway
	settings   *Settings
	fleet      *upstream.Fleet
	request    *request.Request
	completion *completion  // nil for a caller's request
	share      *limit.Share // of the memory for bodies and answers

	maxTokens int64 // default bound of the output per choice; 0 for the model's own
	plan      plan.Plan
	planArray [1]plan.Candidate // backs plan.Order of most requests

	cache    cacheUse
	drawn    drawn
	bill     bill
	circuit  circuit
	attempt  attempt
	response response
	deadline deadline.Deadline
	clock    stopwatch
	progress progress
}

// cacheUse is what a request has to do with the cache of answers.
type cacheUse struct {
	key      cache.Key
	store    bool            // the answer is to be stored
	state    string          // "hit" or "miss"; empty if the cache is not used
	servedBy string          // the model that gave a cached answer
	assembly *chat.Assembler // puts the events of a stream together
}

// An attempt is one call of one model.
type attempt struct {
	held   reservation // for translated bytes
	source source
	first  providerCall // of the first attempt: most requests have no other
}

// A providerCall is what a provider is sent. Its connection may use it for longer than the attempt lasts, so no two
// attempts share one.
type providerCall struct {
	life.Life
	request upstream.Request
}

// progress is what is known about the answer, for log and span.
type progress struct {
	logged       bool          // the exchange is to be logged
	firstContent time.Duration // until the caller was sent the first content

	// For the span of a request that is traced:
	traced        bool
	finishReasons []string     // by choice
	broken        *fault.Fault // that ended a stream which had begun
}

// finished notes why a choice has finished. It is cut: a provider could send any text as a reason.
func (p *progress) finished(choice int, reason string) {
	if !p.traced || choice >= request.MaxChoices {
		return
	}
	for len(p.finishReasons) <= choice {
		p.finishReasons = append(p.finishReasons, "")
	}
	p.finishReasons[choice] = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}

// maxReason bounds a finish reason on a span, in bytes.
const maxReason = 32

// init connects the parts of a run.
func (r *run) init() {
	r.bill.gateway, r.bill.request, r.circuit.gateway = r.gateway, r.request, r.gateway
	r.response.request, r.response.clock = r, &r.clock
}

// noteFinish notes why the choices of a whole answer have finished.
func (r *run) noteFinish(body []byte) {
	if r.progress.traced {
		for i, reason := range answer.FinishReasons(body) {
			r.progress.finished(i, reason)
		}
	}
}

// answerBegan notes that the caller is about to be sent the beginning of the answer.
func (r *run) answerBegan() {
	r.clock.worked()
	r.progress.firstContent = r.clock.elapsed()
	r.gateway.Metrics.contentBegan(r.bill.model.Model, r.progress.firstContent)
}

// begin writes the status and the headers of the answer. length is -1 if it is not known.
func (r *run) begin(contentType string, length int) {
	r.request.Pass.Show(r.response.out.Header(), r.clock.now)
	r.response.begin(&head{
		contentType: contentType, length: length, model: cmp.Or(r.cache.servedBy, r.bill.model.ID),
		alias: r.plan.Alias, cache: r.cache.state,
	})
}

// fallbackFrom returns the model that was to answer, if a fallback serves the request in its place.
func (r *run) fallbackFrom() string {
	if r.plan.Absent == "" && !r.servesFirstChoice() {
		return r.plan.Order[0].ID
	}
	return r.plan.Absent
}

// servesFirstChoice reports whether the current attempt is at the first model of the plan, and not at a fallback.
func (r *run) servesFirstChoice() bool { return r.bill.model.Model == r.plan.Order[0].Model }

// attemptFailed reports an attempt that gave no answer, to the breaker, the metrics and the log. A provider that is
// down would fill the log, so each kind of failure gets one line every ten seconds.
func (r *run) attemptFailed(c *plan.Candidate, f *failure) {
	r.circuit.report(f, r.clock.now)
	if !f.reportable() {
		return
	}
	r.gateway.Metrics.attemptFailed(c.Provider.Name, f.name)
	if _, ok := r.gateway.logLimit.Allow(c.ID+" "+f.name, time.Now()); ok {
		r.gateway.Log.Warn(
			"an attempt failed", "request_id", r.request.ID, "model", c.ID, "provider", c.Provider.Name, "class",
			f.name, "err", f.err,
		)
	}
}
