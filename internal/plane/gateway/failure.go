package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/net/life"
	"sovereign/internal/text/redact"
	"sovereign/internal/wire/upstream"
)

// A failure is a try that gave the caller nothing.
type failure struct {
	class
	err   error
	fault *fault.Fault
	wait  time.Duration // that the provider asks for
}

// A class says what to do about a failure.
type class struct {
	name  string
	retry bool // the same model may do better
	next  bool // another model may do better
}

// The classes.
var (
	refused  = class{name: "refused"}                          // the request's own fault
	limited  = class{name: "limited", retry: true, next: true} // too much for the provider now
	rejected = class{name: "rejected", next: true}             // our key, or the model's name, is no good there
	broken   = class{name: "broken", retry: true, next: true}  // a fault of the provider's or of the network
	silent   = class{name: "silent", next: true}               // waited long enough
	over     = class{name: "over"}                             // the caller left, the time is up, the server stops
	unfit    = class{name: "unfit", next: true}                // the model's wire cannot say what the caller asks
	shunned  = class{name: "shunned", next: true}              // it failed too often of late, and is left alone for a while
)

// lost classifies an error of the connection.
func (r *run) lost(l *life.Life, err error) *failure {
	cause := l.Cause()
	var refusal *fault.Fault
	switch {
	case errors.As(err, &refusal):
		return &failure{class: unfit, err: err, fault: refusal}
	case errors.Is(err, upstream.ErrMemoryLimit):
		return &failure{class: over, err: err, fault: errNoRoom}
	case errors.Is(cause, errSilent):
		return &failure{class: silent, err: err, fault: fault.Timeout.Because(err, "%s did not answer in time", r.model.Provider.Name)}
	case cause != nil:
		return &failure{class: over, err: err, fault: ending(cause)}
	case errors.Is(err, upstream.ErrInvalidAnswer):
		return r.garbage(err)
	default:
		return &failure{class: broken, err: err, fault: fault.Upstream.Because(err, "%s could not be reached, or broke off", r.model.Provider.Name)}
	}
}

func (r *run) garbage(err error) *failure {
	return &failure{class: broken, err: err, fault: fault.Upstream.Because(err, "the answer of %s cannot be read", r.model.Provider.Name)}
}

// maxRefusal bounds what is read of a provider's refusal.
const maxRefusal = 64 << 10

// refusal classifies an answer by its status.
func (r *run) refusal(in *source, response *upstream.Response) *failure {
	held := &account{budget: r.gateway.Bounds.Buffered}
	defer held.back()
	text, _ := in.all(maxRefusal, held) // without its text it is a refusal all the same
	told := r.told(text)
	err := fmt.Errorf("the provider answered %d: %s", response.Status, told.message)
	f := &failure{err: err, wait: response.RetryAfter}
	f.class, f.fault = r.classify(response.Status, told, err)
	if f.fault.Status == http.StatusTooManyRequests {
		f.fault = f.fault.In(max(response.RetryAfter, time.Second))
	}
	return f
}

// classify says what a provider's status means to the caller, and what to do about it.
func (r *run) classify(status int, told told, err error) (class, *fault.Fault) {
	name := r.model.Provider.Name
	switch {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		f := fault.InvalidParameter.Because(err, "%s", told.message)
		f.Field = told.param
		return refused, f
	case status == http.StatusTooManyRequests:
		return limited, fault.RateLimited.Because(err, "%s is at its limit", name)
	case status == http.StatusRequestTimeout:
		return silent, fault.Timeout.Because(err, "%s did not answer in time", name)
	case status >= http.StatusInternalServerError:
		return broken, fault.Upstream.Because(err, "%s failed", name)
	case status == http.StatusNotFound:
		return rejected, fault.Upstream.Because(err, "%s does not know the model, or not at that URL", name)
	case r.model.own != nil:
		return rejected, fault.Upstream.Because(err, "%s refused the workspace's own key or account (%d)", name, status)
	default:
		return rejected, fault.Upstream.Because(err, "%s refused the gateway's key or account", name)
	}
}

// redact takes the provider's key out of a text that a caller will read: some providers repeat it.
func (r *run) redact(text string) string {
	keys := []secret.Text{r.model.Provider.APIKey}
	if r.model.own != nil {
		keys = append(keys, r.model.own.Key)
	}
	for _, key := range keys {
		if !key.Empty() {
			text = strings.ReplaceAll(text, key.Reveal(), redact.Mark)
		}
	}
	clean, _ := redact.Text([]byte(text)) // a provider may quote what it was sent, and this goes into the log
	return string(clean)
}
