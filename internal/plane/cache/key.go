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

// A Hash identifies a request within a workspace.
type Hash = [sha256.Size]byte

// A Key identifies a workspace's request. It is the same for every way to write the same JSON, and different in every
// workspace. Nothing is stored under the zero Key.
type Key struct {
	workspace tenant.ID
	hash      Hash
}

// ignoredMembers are the members of a body that select the model and the form of the answer. The key holds the model as
// it was resolved instead.
var ignoredMembers = map[string]bool{"model": true, "models": true, "stream": true, "stream_options": true}

// exactInts keeps integers over 2⁵³ as they are written: as floats, different ones could become equal.
var exactInts = jsontext.CanonicalizeRawInts(false)

// KeyOf returns the key of a workspace's request on a route, to a model. The order of members, spacing, and the
// notation of strings and numbers do not matter. It returns false for a body that has no canonical form.
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
		hashPart(h, []byte(part))
	}
	for _, m := range members {
		if !ignoredMembers[m.Name] {
			hashPart(h, text[m.Start:m.End])
		}
	}
	key := Key{workspace: workspace}
	h.Sum(key.hash[:0])
	return key, true
}

// hashPart hashes a part after its length, so that no two lists of parts hash the same bytes.
func hashPart(h hash.Hash, part []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(part)))
	_, _ = h.Write(length[:]) // a hash never fails
	_, _ = h.Write(part)
}
