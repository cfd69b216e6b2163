// Package apikey generates and parses workspace API keys, and the tokens of reward sessions and of training
// workers, which have the same form.
//
// A key is sk_sovereign_, 40 characters that carry 200 random bits, and 7 characters of checksum. The checksum lets
// a mistyped key be refused without a lookup; it is not a security measure. Only the SHA-256 digest of the whole key is
// stored: with that much randomness a slow hash would add cost and no security.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"sovereign/internal/base/secret"
)

// Prefix is the prefix of every key, RewardPrefix that of every token of a reward session, and WorkerPrefix that of
// every token of a training worker. They have one length.
const (
	Prefix       = "sk_sovereign_"
	RewardPrefix = "rt_sovereign_"
	WorkerPrefix = "wk_sovereign_"
)

const (
	randomBytes = 25
	bodyLen     = randomBytes * 8 / 5
	sumLen      = 7
	length      = len(Prefix) + bodyLen + sumLen
	hintLen     = 4
)

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// A Digest identifies a key without revealing it.
type Digest [sha256.Size]byte

// New makes a key. The hint is its last four random characters, which leaves 180 secret bits.
func New() (key secret.Text, digest Digest, hint string) { return generate(Prefix) }

// NewReward makes a token of a reward session.
func NewReward() (token secret.Text, digest Digest) {
	token, digest, _ = generate(RewardPrefix)
	return token, digest
}

// NewWorker makes a token of a training worker.
func NewWorker() (token secret.Text, digest Digest) {
	token, digest, _ = generate(WorkerPrefix)
	return token, digest
}

func generate(prefix string) (key secret.Text, digest Digest, hint string) {
	var raw [randomBytes]byte
	_, _ = rand.Read(raw[:]) // never fails: crypto/rand ends the process instead
	body := encoding.EncodeToString(raw[:])
	sum := checksum([]byte(prefix + body))
	text := prefix + body + string(sum[:])
	return secret.New(text), sha256.Sum256([]byte(text)), body[bodyLen-hintLen:]
}

// Parse returns the digest of key, or false when key does not have the format or its checksum is wrong.
func Parse(key string) (Digest, bool) { return parse(Prefix, key) }

// ParseReward is Parse for the token of a reward session.
func ParseReward(token string) (Digest, bool) { return parse(RewardPrefix, token) }

// ParseWorker is Parse for the token of a training worker.
func ParseWorker(token string) (Digest, bool) { return parse(WorkerPrefix, token) }

func parse(prefix, key string) (Digest, bool) {
	if len(key) != length || !strings.HasPrefix(key, prefix) {
		return Digest{}, false
	}
	var text [length]byte // on the stack: this is done for every request
	copy(text[:], key)
	if sum := checksum(text[:length-sumLen]); string(sum[:]) != key[length-sumLen:] {
		return Digest{}, false
	}
	return sha256.Sum256(text[:]), true
}

func checksum(text []byte) (sum [sumLen]byte) {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], crc32.ChecksumIEEE(text))
	encoding.Encode(sum[:], raw[:])
	return sum
}
