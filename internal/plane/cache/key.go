package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/tenant"
	"sovereign/internal/text/scan"
)

// A Sum stands for a question.
type Sum = [sha256.Size]byte

// A Key is a workspace's question: the same for every spelling of it, and another's for nobody else. The zero value is no
// question, and nothing is kept under it.
type Key struct {
	workspace tenant.ID
	sum       Sum
}

// beside are the members of a body that say who shall answer and how it is sent, and not what is asked. The model that was
// asked for is in the key as it was resolved.
var beside = map[string]bool{"model": true, "models": true, "stream": true, "stream_options": true}

// exactInts keeps integers over 2⁵³ as they are: as floats, different ones would be equal.
var exactInts = jsontext.CanonicalizeRawInts(false)

// KeyOf is the key of a question: by whom, on which route, to which model, and what. Order of members, spacing and the
// spelling of texts and numbers do not matter. It is false for a body that has no canonical form.
func KeyOf(workspace tenant.ID, route, model string, body []byte) (Key, bool) {
	text := jsontext.Value(bytes.Clone(body))
	if workspace == "" || text.Canonicalize(exactInts) != nil {
		return Key{}, false
	}
	members, err := scan.Object(text, nil)
	if err != nil {
		return Key{}, false
	}
	h := sha256.New()
	for _, part := range []string{string(workspace), route, model} {
		write(h, []byte(part))
	}
	for _, m := range members {
		if !beside[m.Name] {
			write(h, text[m.Start:m.End])
		}
	}
	key := Key{workspace: workspace}
	h.Sum(key.sum[:0])
	return key, true
}

// write puts the length before a part, so that no two lists of parts are the same bytes.
func write(h hash.Hash, part []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(part)))
	_, _ = h.Write(length[:]) // a hash never fails
	_, _ = h.Write(part)
}
