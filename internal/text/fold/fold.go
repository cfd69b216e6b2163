// Package fold finds conversations among logged exchanges. An exchange whose messages and response are a prefix of
// another exchange's messages is an earlier turn of that conversation, and both form one example. Exchanges are
// compared by hash keys, which are computed once and stored with each exchange, so that folding many exchanges needs
// little memory.
package fold

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Key identifies a prefix of a conversation: prefixes that differ in any turn have different keys. It is a SHA-256
// hash truncated to 128 bits. A second preimage of a given key takes 2^128 attempts. A collision takes 2^64, and a
// caller who finds one only loses a row of its own.
type Key [16]byte

// A Chain holds the keys of an exchange. The zero Chain belongs to an exchange that cannot be parsed: it folds with
// nothing and is never a duplicate.
type Chain struct {
	Own     Key   // the key of messages and response; exchanges with the same Own are duplicates
	Prompt  Key   // the key of the messages
	Earlier []Key // the keys of each prefix of the messages that ends with an assistant's turn, shortest first
}

// The errors of Keys, Questions, Canon, Example and Parse.
var (
	ErrMessages = errors.New("messages are not a JSON array of objects that each have a role")
	ErrResponse = errors.New("response is not a JSON object")
	ErrChain    = errors.New("not the bytes of a chain")
)

// version is the version of the canonical form. Keys of different versions are never equal: after a change of the form,
// older exchanges do not fold with newer ones, and none fold wrongly.
const version = 1

// Keys computes the chain of an exchange. An exchange folds into every exchange that has its Own among its Earlier. The
// time is linear in the size of the texts. Objects with duplicate member names are refused: parsers differ in which of
// the members they use.
func Keys(messages, response []byte) (Chain, error) {
	s := borrow()
	defer s.release()
	return s.chain(messages, response)
}

func (s *scratch) chain(messages, response []byte) (c Chain, _ error) {
	if !valid(response) || first(response) != '{' {
		return c, ErrResponse
	}
	link, err := s.walk(messages, func(role []byte, _, after [sha256.Size]byte) bool {
		if string(role) == assistant {
			s.keys = append(s.keys, Key(after[:]))
		}
		return true
	})
	if err != nil {
		return c, err
	}
	s.read(response, skipSpace(response, 0))
	own := s.link(link, []byte(assistant))
	return Chain{Own: Key(own[:]), Prompt: Key(link[:]), Earlier: append([]Key(nil), s.keys...)}, nil
}

// Questions computes the keys of the questions that are answered within messages, shortest first, at most limit keys:
// of the messages before each assistant's turn, as in Prompt, and after it, as in Earlier. Messages before the first
// turn of a user or a tool ask nothing.
func Questions(messages []byte, limit int) ([]Key, error) {
	s := borrow()
	defer s.release()
	asked := false
	_, err := s.walk(messages, func(role []byte, before, after [sha256.Size]byte) bool {
		switch string(role) {
		case system, developer:
		case assistant:
			if asked {
				s.keys = append(s.keys, Key(before[:]), Key(after[:]))
			}
		default:
			asked = true
		}
		return len(s.keys) < limit
	})
	return append([]Key(nil), s.keys[:min(len(s.keys), limit)]...), err
}

// walk calls fn for each message with the hashes of the conversation before and after it, until fn returns false. It
// returns the last hash.
func (s *scratch) walk(messages []byte, fn func(role []byte, before, after [sha256.Size]byte) bool,
) (link [sha256.Size]byte, err error) {
	link[0] = version
	if !valid(messages) || first(messages) != '[' {
		return link, ErrMessages
	}
	at := skipSpace(messages, skipSpace(messages, 0)+1)
	for messages[at] != ']' {
		if messages[at] != '{' {
			return link, ErrMessages
		}
		at = s.read(messages, at)
		role, ok := s.role()
		if !ok {
			return link, ErrMessages
		}
		before := link
		if link = s.link(link, role); !fn(role, before, link) {
			break
		}
		at = next(messages, at)
	}
	return link, nil
}

// link returns the hash of a conversation extended by the message that was read: the SHA-256 of the previous hash and
// the message's canonical form. Hashes are chained at full length and truncated only when stored as a Key.
func (s *scratch) link(before [sha256.Size]byte, role []byte) [sha256.Size]byte {
	s.out = append(s.out[:0], before[:]...)
	s.message(role)
	s.steps += len(s.nodes) + len(s.out)
	return sha256.Sum256(s.out)
}

// Bytes returns the stored form of a chain: 33 bytes, and 16 for each earlier turn. It is nil for the zero Chain.
func (c Chain) Bytes() []byte {
	if c.Own == (Key{}) {
		return nil
	}
	b := make([]byte, 0, 1+(2+len(c.Earlier))*len(Key{}))
	b = append(b, version)
	b = append(b, c.Own[:]...)
	b = append(b, c.Prompt[:]...)
	for _, k := range c.Earlier {
		b = append(b, k[:]...)
	}
	return b
}

// Parse decodes the result of Bytes.
func Parse(b []byte) (Chain, error) {
	const size = len(Key{})
	switch {
	case len(b) == 0:
		return Chain{}, nil
	case b[0] != version:
		return Chain{}, fmt.Errorf("%w: of version %d, not %d", ErrChain, b[0], version)
	case len(b) < 1+2*size || (len(b)-1)%size != 0:
		return Chain{}, fmt.Errorf("%w: %d bytes long", ErrChain, len(b))
	}
	c := Chain{Own: Key(b[1:]), Prompt: Key(b[1+size:])}
	if b = b[1+2*size:]; len(b) > 0 {
		c.Earlier = make([]Key, 0, len(b)/size)
	}
	for ; len(b) > 0; b = b[size:] {
		c.Earlier = append(c.Earlier, Key(b))
	}
	return c, nil
}
