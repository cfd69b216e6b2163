package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/text/scan"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/rerank"
	"sovereign/internal/wire/upstream"
)

// An Ask is a request as a front end hands it over: admitted, and read whole.
type Ask struct {
	Endpoint *Endpoint
	Caller   tenant.Caller
	ID       string
	Body     []byte
	Lease    upstream.RefCounted // of the body; nil when it is nobody else's
	Cache    string              // on or off, where the caller says so for this request
	Labels   *Labels             // nil for what is not a caller's

	front     flushing // where it came by net/http
	said      Labels   // likewise
	own       *errand  // what the product asks for; nil for a caller's
	members   []scan.Member
	room      [12]scan.Member // for them, mostly
	model     string
	stream    bool
	usage     bool     // the caller asked for usage in the stream
	limit     int64    // most tokens of output, as the caller says; 0 when it does not
	n         int64    // choices
	fallbacks []string // that the caller names; nil when it names none
	elements  int      // of the content, where that is a list
	question  *rerank.Request
	query     int64         // tokens of a reranker's question, at most
	stored    string        // the member that refers to what only the provider knows
	dear      string        // the member that asks for what has a price of its own, which no hold covers
	bounds    *token.Bounds // once they were asked for
}

// Bounds of what a caller may ask for.
const (
	maxChoices   = 128
	maxFallbacks = 8
	maxModelName = 256
)

// read finds what the road must know in the body, and leaves the rest to the provider.
func (a *Ask) read() error {
	var err error
	if a.members, err = scan.ObjectWithWords(a.Body, a.room[:0], sought); err != nil {
		return fault.InvalidBody.New("the body %s", err)
	}
	a.n = 1
	content := false
	for _, m := range a.members {
		if m.Name == a.Endpoint.content {
			if content, err = true, a.checkContent(m); err != nil {
				return err
			}
		}
		take := a.Endpoint.reads[m.Name]
		if take == nil {
			if known, twin := a.Endpoint.twin(m.Name); twin {
				return fault.Invalid(m.Name, "must be written "+known)
			}
			continue
		}
		if string(m.Value) == "null" {
			continue
		}
		if err := take(a, m.Value); err != nil {
			return fault.Invalid(m.Name, err.Error())
		}
	}
	if a.model == "" {
		return fault.Invalid("model", "is required")
	}
	if !content {
		return fault.Invalid(a.Endpoint.content, "is required")
	}
	if a.Endpoint.check != nil {
		return a.Endpoint.check(a)
	}
	return nil
}

// sought are the words that matter to the road wherever they stand in a body: the role that only some providers know, and
// the names of media.
var sought = scan.NewWords(append([]string{"developer"}, token.Media()...)...)

const (
	developer scan.WordSet = 1
	media                  = ^developer
)

// seen reports whether one of some words stands anywhere in the body.
func (a *Ask) seen(words scan.WordSet) bool {
	for i := range a.members {
		if a.members[i].Seen&words != 0 {
			return true
		}
	}
	return false
}

// tokens are how many the request is, at least and at most. A long body takes its time to be measured.
func (a *Ask) tokens() token.Bounds {
	if a.bounds == nil {
		b := token.Body(a.Body)
		a.bounds = &b
	}
	return *a.bounds
}

func (a *Ask) checkContent(m scan.Member) error {
	n, array := max(m.Elements, 0), m.Elements >= 0
	a.elements = n
	switch {
	case array && n == 0:
		return fault.Invalid(a.Endpoint.content, "must not be empty")
	case array && n > a.Endpoint.most:
		return fault.Invalid(a.Endpoint.content, fmt.Sprintf("must have at most %d elements", a.Endpoint.most))
	case !array && a.Endpoint.listed:
		return fault.Invalid(a.Endpoint.content, "must be an array")
	}
	return nil
}

func readModel(a *Ask, value []byte) error {
	if plain, ok := plainText(value); ok && len(plain) > 0 && len(plain) <= maxModelName {
		a.model = string(plain)
		return nil
	}
	if err := json.Unmarshal(value, &a.model); err != nil || a.model == "" || len(a.model) > maxModelName {
		return fmt.Errorf("must be a text of 1 to %d characters", maxModelName)
	}
	return nil
}

// plainText is what a JSON string says that has no escapes. The body was found to be UTF-8 before.
func plainText(value []byte) ([]byte, bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	inner := value[1 : len(value)-1]
	for _, c := range inner {
		if c == '\\' || c < ' ' {
			return nil, false
		}
	}
	return inner, true
}

func readFallbacks(a *Ask, value []byte) error {
	if err := json.Unmarshal(value, &a.fallbacks); err != nil || len(a.fallbacks) > maxFallbacks {
		return fmt.Errorf("must be a list of at most %d model ids", maxFallbacks)
	}
	if a.fallbacks == nil {
		a.fallbacks = []string{}
	}
	return nil
}

func readStream(a *Ask, value []byte) error {
	switch string(value) {
	case "true":
		a.stream = true
	case "false":
	default:
		return errors.New("must be true or false")
	}
	return nil
}

func readStreamOptions(a *Ask, value []byte) error {
	if string(value) == `{"include_usage":true}` || string(value) == `{"include_usage": true}` { // as everybody writes it
		a.usage = true
		return nil
	}
	var options struct {
		IncludeUsage *bool `json:"include_usage"`
	}
	if err := json.Unmarshal(value, &options); err != nil {
		return errors.New("must be an object whose include_usage is true or false")
	}
	a.usage = options.IncludeUsage != nil && *options.IncludeUsage
	return nil
}

// readLimit takes the larger of the two members that say the same: the hold must cover whichever the provider obeys.
func readLimit(a *Ask, value []byte) error {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 1 {
		return errors.New("must be a whole number of at least 1")
	}
	a.limit = max(a.limit, n)
	return nil
}

func readN(a *Ask, value []byte) error {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 1 || n > maxChoices {
		return fmt.Errorf("must be a whole number from 1 to %d", maxChoices)
	}
	a.n = n
	return nil
}

func (a *Ask) member(name string) (int, bool) {
	i := slices.IndexFunc(a.members, func(m scan.Member) bool { return m.Name == name })
	return i, i >= 0
}

// An edit puts a text in the place of a range of the body.
type edit struct {
	from, to int
	with     []byte
}

// body is what goes to a model's provider: the caller's bytes, with the model's own name there, without our own
// members, and with what makes the answer countable. It is appended to parts.
func (a *Ask) body(parts [][]byte, c candidate, standard int64) [][]byte {
	m := c.Model
	var room [4]edit
	edits := room[:0]
	var more []byte // members to add
	if i, ok := a.member("model"); ok {
		name, _ := jsontext.AppendQuote(nil, m.Upstream) // a text of the catalog's
		edits = append(edits, edit{a.members[i].ValueStart(), a.members[i].End, name})
	}
	if i, ok := a.member("models"); ok {
		edits = append(edits, a.without(i))
	}
	if i, ok := a.member("messages"); ok && m.Provider.Protocol == live.OpenAI && !m.Provider.Modern {
		edits = append(edits, developers(a.members[i])...)
	}
	if a.stream && !a.usage && !m.NoStreamUsage && a.Endpoint == Chat {
		if i, ok := a.member("stream_options"); ok {
			options := a.members[i]
			edits = append(edits, edit{options.ValueStart(), options.End, withUsage(options.Value)})
		} else {
			more = append(more, `,"stream_options":{"include_usage":true}`...)
		}
	}
	if a.Endpoint.stateful && m.Provider.Responses && c.own == nil { // nothing is stored under the server's key
		if i, ok := a.member("store"); ok {
			edits = append(edits, edit{a.members[i].ValueStart(), a.members[i].End, []byte("false")})
		} else {
			more = append(more, `,"store":false`...)
		}
	}
	if a.limit == 0 && standard > 0 && m.Kind == live.Chat {
		most := strconv.AppendInt(nil, min(standard, m.MaxOutput), 10)
		name := a.Endpoint.limit(m)
		if i, ok := a.member(name); ok { // it is null
			edits = append(edits, edit{a.members[i].ValueStart(), a.members[i].End, most})
		} else {
			more = fmt.Appendf(more, `,%q:%s`, name, most)
		}
	}
	if len(more) > 0 {
		last := a.members[len(a.members)-1].End
		edits = append(edits, edit{last, last, more})
	}
	if len(edits) > 1 {
		slices.SortStableFunc(edits, func(x, y edit) int { return x.from - y.from })
	}
	at := 0
	for _, e := range edits {
		parts = append(parts, a.Body[at:e.from], e.with)
		at = e.to
	}
	return append(parts, a.Body[at:])
}

// developers puts the role of the system in the place of the developer's, which only OpenAI's own API knows to be the
// same.
func developers(messages scan.Member) (edits []edit) {
	if messages.Seen&developer == 0 {
		return nil
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(messages.Value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	role := false
	for {
		t, err := decoder.ReadToken()
		if err != nil {
			return edits // the end, or what the provider will refuse
		}
		_, length := decoder.StackIndex(decoder.StackDepth())
		named := decoder.StackDepth() == 2 && length%2 == 1 && t.Kind() == '"' // in a message, behind a name
		if role && !named && t.Kind() == '"' && t.String() == "developer" {
			to := messages.ValueStart() + int(decoder.InputOffset())
			edits = append(edits, edit{to - len(`"developer"`), to, []byte(`"system"`)})
		}
		role = named && t.String() == "role"
	}
}

// without takes a member and the comma beside it out.
func (a *Ask) without(i int) edit {
	if i > 0 {
		return edit{a.members[i-1].End, a.members[i].End, nil}
	}
	return edit{a.members[0].Start, a.members[1].Start, nil} // the model's name is another member
}

// withUsage is stream_options with include_usage true and the rest as it was.
func withUsage(options []byte) []byte {
	members, err := scan.Object(options, nil)
	if err != nil || len(members) == 0 {
		return []byte(`{"include_usage":true}`)
	}
	for _, m := range members {
		if m.Name == "include_usage" {
			return slices.Concat(options[:m.ValueStart()], []byte("true"), options[m.End:])
		}
	}
	last := members[len(members)-1].End
	return slices.Concat(options[:last], []byte(`,"include_usage":true`), options[last:])
}

const (
	maxTag   = 64
	maxTrace = 128
)

// checkLabels refuses the headers that say something of a request, and never leave us, when they break a rule: before any
// money is held.
func checkLabels(header http.Header) error {
	logged, cached := edge.FirstValue(header, "X-Service-Log"), edge.FirstValue(header, "X-Service-Cache")
	switch {
	case !printable(edge.FirstValue(header, "X-Service-Tag"), maxTag):
		return fault.Invalid("X-Service-Tag", fmt.Sprintf("must be at most %d characters, without control characters", maxTag))
	case !printable(edge.FirstValue(header, "X-Service-Trace-Id"), maxTrace):
		return fault.Invalid("X-Service-Trace-Id", fmt.Sprintf("must be at most %d characters, without control characters", maxTrace))
	case logged != "" && logged != "off":
		return fault.Invalid("X-Service-Log", "can only be off")
	case cached != "" && cached != "on" && cached != "off":
		return fault.Invalid("X-Service-Cache", "must be on or off")
	default:
		return nil
	}
}

func printable(text string, most int) bool {
	return text == "" || len([]rune(text)) <= most && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\uFFFD'
	})
}
