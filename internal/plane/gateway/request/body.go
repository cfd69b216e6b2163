package request

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/lenient"
	"sovereign/internal/text/scan"
)

// An edit replaces a part of the body by another text.
type edit struct {
	lenient.Range
	with []byte
}

func (q *Request) replace(i int, with []byte) edit {
	return edit{lenient.Range{From: q.Members[i].ValueStart(), To: q.Members[i].End}, with}
}

// ProviderBody appends to parts the body that goes to a model's provider: the caller's bytes, with the provider's name
// of the model, without the gateway's own members, and with what makes the provider report usage. ownKey says that the
// workspace's own key is used; maxTokens is the default bound of the output, or 0.
func (q *Request) ProviderBody(parts [][]byte, m *live.Model, ownKey bool, maxTokens int64) [][]byte {
	var array [4]edit
	edits := array[:0]
	var added []byte // members to add
	if i, ok := q.member("model"); ok {
		name, _ := jsontext.AppendQuote(nil, m.Upstream) // the catalog's names are valid UTF-8
		edits = append(edits, q.replace(i, name))
	}
	if i, ok := q.member("models"); ok {
		edits = append(edits, edit{lenient.Cut(q.Members, i), nil}) // "model" is another member
	}
	if i, ok := q.member("messages"); ok && m.Provider.SpeaksOpenAI() && !m.Provider.Modern {
		edits = append(edits, renameDevelopers(q.Members[i])...)
	}
	if q.Stream && !q.IncludeUsage && !m.NoStreamUsage && q.Endpoint == Chat {
		if i, ok := q.member("stream_options"); ok {
			edits = append(edits, q.replace(i, withUsage(q.Members[i].Value)))
		} else {
			added = append(added, `,"stream_options":{"include_usage":true}`...)
		}
	}
	if q.Endpoint.Stateful && m.Provider.Responses && !ownKey { // nothing is stored under the server's key
		if i, ok := q.member("store"); ok {
			edits = append(edits, q.replace(i, []byte("false")))
		} else {
			added = append(added, `,"store":false`...)
		}
	}
	if q.MaxTokens == 0 && maxTokens > 0 && m.Kind == live.Chat {
		limit := strconv.AppendInt(nil, min(maxTokens, m.MaxOutput), 10)
		name := q.Endpoint.MaxTokensMember(m)
		if i, ok := q.member(name); ok { // it is null
			edits = append(edits, q.replace(i, limit))
		} else {
			added = fmt.Appendf(added, `,%q:%s`, name, limit)
		}
	}
	if len(added) > 0 {
		last := q.Members[len(q.Members)-1].End
		edits = append(edits, edit{lenient.Range{From: last, To: last}, added})
	}
	return apply(parts, q.Body, edits)
}

// apply appends the parts of a body with its edits.
func apply(parts [][]byte, body []byte, edits []edit) [][]byte {
	if len(edits) > 1 {
		slices.SortStableFunc(edits, func(x, y edit) int { return x.From - y.From })
	}
	at := 0
	for _, e := range edits {
		parts = append(parts, body[at:e.From], e.with)
		at = e.To
	}
	return append(parts, body[at:])
}

func (q *Request) member(name string) (int, bool) { return lenient.Member(q.Members, name) }

// renameDevelopers replaces the role "developer" by "system". Only OpenAI's own API knows that they are the same.
func renameDevelopers(messages scan.Member) (edits []edit) {
	if messages.Seen&developerWord == 0 {
		return nil
	}
	decoder := jsontext.NewDecoder(
		bytes.NewReader(messages.Value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
	)
	role := false
	for {
		t, err := decoder.ReadToken()
		if err != nil {
			return edits // the end, or what the provider will refuse
		}
		_, length := decoder.StackIndex(decoder.StackDepth())
		isName := decoder.StackDepth() == 2 && length%2 == 1 && t.Kind() == '"' // of a message's member
		if role && !isName && t.Kind() == '"' && t.String() == "developer" {
			to := messages.ValueStart() + int(decoder.InputOffset())
			edits = append(edits, edit{lenient.Range{From: to - len(`"developer"`), To: to}, []byte(`"system"`)})
		}
		role = isName && t.String() == "role"
	}
}

// withUsage returns stream_options with include_usage set to true.
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
