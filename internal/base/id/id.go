// Package id generates ids: a prefix for the kind, then 26 characters that sort by creation time.
package id

import (
	"encoding/base32"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"time"
)

// alphabet is Crockford's base 32 in lower case: its order is the order of the bytes, so that ids sort by time.
var alphabet = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New returns a new id such as key_01k… : 56 bits of microseconds and 72 random bits. Ids are not secret: the random
// bits come from the runtime's generator, which is cheap.
func New(prefix string) string { return At(prefix, time.Now()) }

// At returns a new id with creation time t.
func At(prefix string, t time.Time) string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(t.UnixMicro())<<8|rand.Uint64()>>56)
	binary.BigEndian.PutUint64(raw[8:], rand.Uint64())
	var text [64]byte
	id := append(append(text[:0], prefix...), '_')
	return string(alphabet.AppendEncode(id, raw[:]))
}

// Has reports whether s has the format of an id with that prefix.
func Has(prefix, s string) bool {
	body, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || len(body) != 26 || strings.ContainsAny(body, "\r\n") { // which the decoder would ignore
		return false
	}
	_, err := alphabet.DecodeString(body)
	return err == nil
}

// Born returns the creation time in an id, to the microsecond.
func Born(prefix, s string) (time.Time, bool) {
	if !Has(prefix, s) {
		return time.Time{}, false
	}
	raw, _ := alphabet.DecodeString(s[len(prefix)+1:])
	return time.UnixMicro(int64(binary.BigEndian.Uint64(raw[:8]) >> 8)), true
}
