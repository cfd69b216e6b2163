package api

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/text/scan"
)

// A largeMember is a member of a body that may be larger than the rest of it: a list of JSON values, whose field has
// the tag large with the most bytes that it may have, and maxItems. It is not parsed as the rest is, which would take
// many times its size in memory. Its elements are valid JSON, and slices of the body.
type largeMember struct {
	name  string
	index []int // within the body
	bytes int64
	items int
}

// largeOperations is how many bodies with a large member are handled at once.
const largeOperations = 4

// newLarge returns the large member of a body, or nil.
func newLarge(body reflect.Type) (*largeMember, error) {
	if body.Kind() != reflect.Struct {
		return nil, nil //nolint:nilnil // a body of another kind has none
	}
	for _, field := range reflect.VisibleFields(body) {
		tag := field.Tag.Get("large")
		if tag == "" {
			continue
		}
		size, err := strconv.ParseInt(tag, 10, 64)
		items, badItems := strconv.Atoi(field.Tag.Get("maxItems"))
		if err != nil || badItems != nil || field.Type != reflect.TypeFor[[]jsontext.Value]() {
			return nil, fmt.Errorf(
				"%s.%s is no large member: it needs sizes, and the type []jsontext.Value", body, field.Name,
			)
		}
		name, _, _ := bytes.Cut([]byte(field.Tag.Get("json")), []byte(","))
		return &largeMember{string(name), field.Index, size, items}, nil
	}
	return nil, nil //nolint:nilnil // most bodies have none
}

// most returns how large a body may be.
func (l *largeMember) most() int64 {
	if l == nil {
		return managementBody
	}
	return managementBody + l.bytes
}

// cut returns the body with an empty list in place of the large member, and the elements of that member.
func (l *largeMember) cut(body []byte) (rest []byte, elements []jsontext.Value, err error) {
	members, err := scan.Object(body, nil)
	if err != nil {
		return nil, nil, fault.InvalidBody.New("the body %v", err)
	}
	rest = body
	for _, m := range members {
		if m.Name != l.name {
			continue
		}
		if elements, err = l.split(m); err != nil {
			return nil, nil, err
		}
		rest = bytes.Join([][]byte{body[:m.ValueStart()], body[m.End:]}, []byte("[]"))
	}
	if len(rest) > managementBody {
		return nil, nil, fault.BodyTooLarge.New("the body is over %d bytes, %s not counted", managementBody, l.name)
	}
	return rest, elements, nil
}

// split returns the elements of the large member.
func (l *largeMember) split(m scan.Member) ([]jsontext.Value, error) {
	switch {
	case m.Elements < 0:
		return nil, fault.Invalid(l.name, "must be a list")
	case m.Elements > l.items:
		return nil, fault.Invalid(l.name, fmt.Sprintf("must be a list of at most %d", l.items))
	case int64(len(m.Value)) > l.bytes:
		return nil, fault.BodyTooLarge.New("%s is over %d bytes", l.name, l.bytes)
	case !jsontext.Value(m.Value).IsValid():
		return nil, fault.Invalid(l.name, "must be valid JSON, without two members of one name")
	}
	elements := make([]jsontext.Value, 0, m.Elements)
	for element := range scan.Elements(m.Value) {
		elements = append(elements, element)
	}
	return elements, nil
}
