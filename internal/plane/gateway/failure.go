package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/outcome"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/deadline"
	"sovereign/internal/plane/gateway/plan"
	"sovereign/internal/text/redact"
	"sovereign/internal/wire/upstream"
)

// A failure is why an attempt gave no complete answer.
type failure struct {
	class
	err        error
	fault      *fault.Fault
	retryAfter time.Duration // that the provider asks for
	final      bool          // a retry by the caller would fail likewise
}

// A class says what to do about a failure.
type class struct {
	name   string         // in metrics and the log
	retry  bool           // the same model may succeed
	next   bool           // another model may succeed
	sample outcome.Sample // what it says about the model, to a gate; empty if that depends on what ended the request
}

// The classes.
var (
	// the request itself is at fault
	refused = class{name: "refused", sample: outcome.Excluded}
	// the provider's rate limit
	limited = class{name: "limited", retry: true, next: true, sample: outcome.Failed}
	// the provider rejects the key, or the model's name
	rejected = class{name: "rejected", next: true, sample: outcome.Failed}
	// a fault of the provider or of the network
	broken = class{name: "broken", retry: true, next: true, sample: outcome.Failed}
	// the provider timed out
	silent = class{name: "silent", next: true, sample: outcome.Failed}
	// no engine of the server was ready in time
	unready = class{name: "unready", next: true, sample: outcome.Excluded}
	// the caller left, time or memory is exhausted, the server stops
	stopped = class{name: "over"}
	// the provider's protocol cannot express the request
	unsupported = class{name: "unfit", next: true, sample: outcome.Excluded}
	// it failed too often of late, and is not called for a while
	circuitOpen = class{name: "shunned", next: true, sample: outcome.Failed}
)

// after notes how often the model was retried. The failure is final where the caller's own retries would meet it
// again: the gateway has retried already, the provider refuses the request, the key or the name, or it is not asked for
// a while. Otherwise an SDK would multiply the gateway's attempts by its own.
func (f *failure) after(retries int) *failure {
	switch f.class {
	case refused, rejected, unsupported, circuitOpen:
		f.final = true
	case broken:
		f.final = retries > 0
	}
	return f
}

// reportable reports whether a failure is counted and logged: all but those that the caller, the gateway or the
// provider's protocol caused.
func (f *failure) reportable() bool { return f.class != stopped && f.class != unsupported }

// connectionFailure classifies an error of the connection to a provider. cause is why the attempt was ended, or nil.
func connectionFailure(c *plan.Candidate, cause, err error) *failure {
	var refusal *fault.Fault
	switch {
	case errors.As(err, &refusal) && refusal.Kind == fault.UnknownProvider: // the workspace's own URL leads nowhere
		return &failure{class: rejected, err: err, fault: refusal}
	case refusal != nil && refusal.Kind == fault.Unavailable:
		return &failure{class: unready, err: err, fault: refusal}
	case refusal != nil:
		return &failure{class: unsupported, err: err, fault: refusal}
	case errors.Is(err, upstream.ErrMemoryLimit):
		return &failure{class: stopped, err: err, fault: errBufferFull}
	case errors.Is(cause, deadline.ErrSilent):
		return &failure{
			class: silent, err: err, fault: fault.Timeout.Because(err, "%s did not answer in time", c.Provider.Name),
		}
	case cause != nil:
		return &failure{class: stopped, err: err, fault: causeFault(cause)}
	case errors.Is(err, upstream.ErrInvalidAnswer):
		return unreadable(c, err)
	default:
		return &failure{class: broken, err: err, fault: fault.Upstream.Because(
			err, "%s could not be reached, or broke off", c.Provider.Name,
		)}
	}
}

// causeFault returns the refusal for a caller that is still connected when its request was ended on purpose.
func causeFault(cause error) *fault.Fault {
	switch {
	case errors.Is(cause, errStopping):
		return fault.Unavailable.Because(cause, "the server is stopping").In(time.Second)
	case errors.Is(cause, errRevoked):
		return fault.InvalidKey.Because(cause, "the API key was revoked while the request ran")
	case errors.Is(cause, errExpired):
		return fault.KeyExpired.Because(cause, "the API key expired while the request ran")
	}
	return fault.Timeout.Because(cause, "the request took too long")
}

// unreadable is the failure of an answer that cannot be read.
func unreadable(c *plan.Candidate, err error) *failure {
	return &failure{
		class: broken, err: err, fault: fault.Upstream.Because(err, "the answer of %s cannot be read", c.Provider.Name),
	}
}

// unrecorded is the failure of a request whose charge the journal does not take.
func unrecorded(err error) *failure {
	return &failure{class: stopped, err: err, fault: unrecordedFault(err)}
}

func unrecordedFault(err error) *fault.Fault {
	return fault.Unavailable.Because(err, "charges cannot be recorded now").In(time.Second)
}

// refusal classifies a provider's response by its status and body.
func refusal(c *plan.Candidate, response *upstream.Response, body []byte) *failure {
	reason := readError(c, body)
	err := fmt.Errorf("the provider answered %d: %s", response.Status, cmp.Or(reason.Message, "no message"))
	f := &failure{err: err, retryAfter: response.RetryAfter}
	f.class, f.fault = classify(c, response.Status, reason, err)
	if f.fault.Status == http.StatusTooManyRequests {
		f.fault = f.fault.In(max(response.RetryAfter, time.Second))
	}
	return f
}

// errorInAnswer classifies an error that came in place of an answer, with status 200.
func errorInAnswer(c *plan.Candidate, value []byte) *failure {
	reason := readError(c, value[:min(len(value), maxRefusal)])
	status := reason.Status
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	f := &failure{err: fmt.Errorf("the provider's answer is an error: %s", cmp.Or(reason.Message, "no message"))}
	f.class, f.fault = classify(c, status, reason, f.err)
	return f
}

// classify says what a provider's status means for the caller, and what to do about it.
func classify(c *plan.Candidate, status int, reason answer.Error, err error) (class, *fault.Fault) {
	name, words := c.Provider.Name, ownersWords(c, reason)
	switch {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		f := fault.InvalidParameter.Because(err, "%s", cmp.Or(reason.Message, "the provider refused the request"))
		f.Field, f.ProviderCode = reason.Param, passedCode(reason.Code)
		return refused, f
	case status == http.StatusTooManyRequests:
		return limited, fault.RateLimited.Because(err, "%s is at its limit%s", name, words)
	case status == http.StatusRequestTimeout:
		return silent, fault.Timeout.Because(err, "%s did not answer in time", name)
	case status >= http.StatusInternalServerError:
		return broken, fault.Upstream.Because(err, "%s failed%s", name, words)
	case status == http.StatusNotFound:
		return rejected, fault.Upstream.Because(err, "%s does not know the model, or not at that URL%s", name, words)
	case c.Own != nil:
		return rejected, fault.Upstream.Because(err, "%s refused the workspace's own key or account (%d)%s",
			name, status, words)
	default:
		return rejected, fault.Upstream.Because(err, "%s refused the gateway's key or account", name)
	}
}

// ownersWords returns a provider's message about an account, to be appended, if the account is the workspace's own.
// What a provider says about the server's account (its name, its limits, its bills) is the operator's, and only logged.
func ownersWords(c *plan.Candidate, reason answer.Error) string {
	if c.Own == nil || reason.Message == "" {
		return ""
	}
	return ": " + reason.Message
}

// passedCode returns a provider's code as the caller may see it. A code of ours that means something else than a
// refused parameter is not passed: a caller must be able to believe, for one, that its balance is insufficient.
func passedCode(code string) string {
	for _, k := range fault.Kinds() {
		if k.Code == code && (k.Status != http.StatusBadRequest || k == fault.UnknownProvider) {
			return ""
		}
	}
	return code
}

// readError reads an error that a provider sent, without the keys that it may repeat.
func readError(c *plan.Candidate, body []byte) answer.Error {
	return answer.ReadError(body, func(text string) string { return removeKeys(c, text) })
}

// removeKeys removes the provider's key, and parts of it, from a text that a caller will read, since some providers
// repeat it. It redacts other secrets too: a provider may quote what it was sent, and the text goes into the log.
func removeKeys(c *plan.Candidate, text string) string {
	text = redact.Known(text, c.Provider.APIKey.Reveal())
	if c.Own != nil {
		text = redact.Known(text, c.Own.Key.Reveal())
	}
	clean, _ := redact.Text([]byte(text))
	return string(clean)
}
