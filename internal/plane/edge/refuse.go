package edge

import (
	"cmp"
	"math"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/net/fastpath"
)

// An Envelope is the body of a refusal.
type Envelope struct {
	Error Refusal `json:"error"`
}

// A Refusal says what was refused and why.
type Refusal struct {
	Message string  `json:"message" doc:"For people; not to be parsed"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param" doc:"The field at fault, where there is one"`
}

// A Flat is the body with which the training and infrastructure APIs refuse a request body.
type Flat struct {
	Error string `json:"error"`
}

// Refuse writes err as a refusal, without what a caller may not see.
func Refuse(w http.ResponseWriter, r *http.Request, err error) { refuse(w, r, err, asEnvelope) }

// RefuseFlat is Refuse with the flat form of the training and infrastructure APIs, {"error": "text"}, for a refused
// body (status 400).
func RefuseFlat(w http.ResponseWriter, r *http.Request, err error) { refuse(w, r, err, asFlat) }

// RefuseText is Refuse for a caller that prefers text, where the fault has one.
func RefuseText(w http.ResponseWriter, r *http.Request, err error) { refuse(w, r, err, asText) }

// A form is that of a refusal's body.
type form int

const (
	asEnvelope form = iota
	asFlat
	asText
)

// body returns the body of a refusal, and its media type.
func (as form) body(f *fault.Fault, shown Envelope) (text []byte, kind string) {
	switch {
	case as == asText && f.Plain != "":
		return []byte(f.Plain), "text/plain; charset=utf-8"
	case as == asFlat && f.Status == http.StatusBadRequest:
		text = encode(Flat{Error: shown.Error.Message})
	default:
		text = encode(shown)
		if f.Beside != nil {
			if beside := encode(f.Beside); len(beside) > len("{}") {
				text = append(append(text[:len(text)-1], ','), beside[1:]...)
			}
		}
	}
	return append(text, '\n'), "application/json"
}

// refuse is the only place where an error becomes a response.
func refuse(w http.ResponseWriter, r *http.Request, err error, as form) {
	f, call, header := fault.From(err), callOf(r.Context()), w.Header()
	call.fault, call.cause = f, err
	if f.Status == http.StatusTooManyRequests || f.Status == http.StatusServiceUnavailable {
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(f.RetryAfter.Seconds())))))
	}
	if f.Final() {
		header.Set("X-Should-Retry", "false")
	}
	if f.Status == http.StatusUnauthorized && f.Code != fault.NotSignedIn.Code {
		header.Set("WWW-Authenticate", "Bearer")
	}
	if call.closes || closesAfter(r, call, f) {
		header.Set("Connection", "close")
	}
	message := f.Message
	if call.showCauses && f.Status >= http.StatusInternalServerError {
		message = f.Error()
	}
	text, kind := as.body(f, envelope(call.id, f, message))
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(f.Status)
	_, _ = w.Write(text) // a caller that has disconnected misses nothing
}

// closesAfter reports whether a refusal ends its connection, so that it gives up its place. That is so without a key,
// and where net/http's server would wait for the rest of the body before it sends the refusal. A proxy's connections
// stay open, since they serve other clients too.
func closesAfter(r *http.Request, call *call, f *fault.Fault) bool {
	if call.conn == nil || call.conn.proxied {
		return false
	}
	_, paced := r.Body.(fastpath.PacedBody)
	return f.Status == http.StatusUnauthorized || r.ProtoMajor == 1 && r.ContentLength != 0 && !call.bodyRead && !paced
}

// envelope returns a refusal. For faults of the server it names the request id, so that the log line can be found.
func envelope(id string, f *fault.Fault, message string) Envelope {
	if f.Status >= http.StatusInternalServerError {
		message += " (request " + id + ")"
	}
	code := cmp.Or(f.ProviderCode, f.Code)
	return Envelope{Refusal{Message: message, Type: f.Type, Code: optional(code), Param: optional(f.Field)}}
}

// encode never fails: AllowInvalidUTF8 admits whatever text of the caller a message quotes.
func encode(body any) []byte {
	text, _ := json.Marshal(body, jsontext.AllowInvalidUTF8(true))
	return text
}

// Event returns a refusal as the data of an event, for a stream that has begun.
func Event(id string, f *fault.Fault) []byte { return encode(envelope(id, f, f.Message)) }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
