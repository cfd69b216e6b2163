package answer

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// An errorReader reads an error in JSON as a stream of tokens, so that it keeps what it has read of a body that is cut
// off: FastAPI, for one, quotes the whole request after its message.
type errorReader struct {
	in                *jsontext.Decoder
	code, param, kind string
	status            int
	raw               string // the body of another provider that this one quotes
}

// messages are the members of an object that hold its message, the best first. Each may hold a text, an object with a
// message, or a list of either.
var messages = []string{"message", "detail", "msg", "error", "errors", "title"}

// maxErrorDepth bounds how deep objects are searched for a message.
const maxErrorDepth = 6

// read returns the message of an error. A page of HTML, as proxies send it, says what its title says.
func (r *errorReader) read(body []byte) string {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0 || string(body) == "null" || bytes.IndexByte(body, 0) >= 0: // binary data is no message
		return ""
	case body[0] == '<':
		return title(string(body))
	case body[0] != '{' && body[0] != '[' && body[0] != '"':
		return string(body)
	}
	r.in = jsontext.NewDecoder(
		bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	)
	text, _ := r.value(0) // what was read before an error counts
	if r.raw != "" {
		var quoted errorReader
		text = strings.TrimPrefix(text+": "+quoted.read([]byte(r.raw)), ": ")
		r.code = cmp.Or(quoted.code, r.code)
	}
	return text
}

// title returns the title of a page.
func title(page string) string {
	_, rest, _ := strings.Cut(page, "<title>")
	text, _, found := strings.Cut(rest, "</title>")
	if !found {
		return ""
	}
	return strings.TrimSpace(text)
}

// value reads the next value, and returns the message in it.
func (r *errorReader) value(depth int) (string, error) {
	switch kind := r.in.PeekKind(); {
	case kind == '"':
		return r.scalar()
	case kind == '{' && depth < maxErrorDepth:
		return r.object(depth)
	case kind == '[' && depth < maxErrorDepth:
		return r.list(depth)
	default:
		return "", r.in.SkipValue()
	}
}

// object reads an object. A message with a location, as FastAPI's have, begins with it.
func (r *errorReader) object(depth int) (text string, err error) {
	best, location := len(messages), ""
	_, err = r.in.ReadToken()
	for err == nil && r.in.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = r.in.ReadToken(); err != nil {
			break
		}
		member := strings.ToLower(name.String())
		if rank := slices.Index(messages, member); rank >= 0 {
			var said string
			if said, err = r.value(depth + 1); said != "" && rank < best {
				text, best = said, rank
			}
			continue
		}
		if member == "loc" {
			location, err = r.location()
			continue
		}
		err = r.member(member, depth)
	}
	if err == nil {
		_, err = r.in.ReadToken()
	}
	if location != "" && text != "" {
		r.param, text = cmp.Or(r.param, location), location+": "+text
	}
	return text, err
}

// member reads a member that is no message. Of several of one name, the first counts.
func (r *errorReader) member(name string, depth int) error {
	var into *string
	var status string
	switch name {
	case "code":
		into = &r.code
	case "param":
		into = &r.param
	case "type":
		into = &r.kind
	case "status":
		into = &status
	case "raw":
		into = &r.raw
	case "metadata": // OpenRouter's, with the body of the provider behind it as raw
		_, err := r.value(depth + 1)
		return err
	default:
		return r.in.SkipValue()
	}
	text, err := r.scalar()
	if *into == "" {
		*into = text
	}
	if n, bad := strconv.Atoi(status); bad == nil && r.status == 0 && n < 600 {
		r.status = n
	}
	return err
}

// list reads a list, and returns the messages in it until they are long enough.
func (r *errorReader) list(depth int) (text string, err error) {
	_, err = r.in.ReadToken()
	for err == nil && r.in.PeekKind() != ']' {
		var said string
		said, err = r.value(depth + 1)
		switch {
		case said == "" || len(text) > maxMessage:
		case text == "":
			text = said
		default:
			text += "; " + said
		}
	}
	if err == nil {
		_, err = r.in.ReadToken()
	}
	return text, err
}

// scalar returns a string or a number, as text. Any other value is skipped.
func (r *errorReader) scalar() (string, error) {
	if kind := r.in.PeekKind(); kind != '"' && kind != '0' {
		return "", r.in.SkipValue()
	}
	token, err := r.in.ReadToken()
	if err != nil {
		return "", err
	}
	return token.String(), nil
}

// location reads where in a request an error is, as FastAPI lists it: ["body", "messages", 0, "role"] is
// messages[0].role.
func (r *errorReader) location() (string, error) {
	if r.in.PeekKind() != '[' {
		return "", r.in.SkipValue()
	}
	var path strings.Builder
	_, err := r.in.ReadToken()
	for err == nil && r.in.PeekKind() != ']' {
		kind := r.in.PeekKind()
		var part string
		if part, err = r.scalar(); err != nil {
			break
		}
		switch {
		case kind == '0':
			path.WriteString("[" + part + "]")
		case path.Len() > 0:
			path.WriteString("." + part)
		case part != "body" && part != "query" && part != "path" && part != "header":
			path.WriteString(part)
		}
	}
	if err == nil {
		_, err = r.in.ReadToken()
	}
	return path.String(), err
}
