// Package fold finds the conversations among logged exchanges: an exchange whose messages and response are the beginning
// of another's messages is an earlier turn of it, and both are one example. What is compared is not the texts but
// keys of them, which are made once and kept beside each exchange, so that ten thousand of them fold in little memory.
package fold

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Key stands for the beginning of a conversation: two that differ in any turn have different keys. It is half of a
// SHA-256. To make up a conversation with the key of another's takes 2^128 tries; a caller who finds two of his own that
// share one, in 2^64, has lost a row of his own and none of anybody else's.
type Key [16]byte

// A Chain is what an exchange folds by. The zero Chain, of an exchange that cannot be read, folds with nothing and is
// nobody's duplicate.
type Chain struct {
	Own     Key   // of the messages and the response; exchanges that share it are duplicates
	Prompt  Key   // of the messages alone
	Earlier []Key // of each beginning of the messages that ends with an assistant's turn, the shortest first
}

// The ways in which an exchange cannot be read.
var (
	ErrMessages = errors.New("messages are not a JSON array of objects that each have a role")
	ErrResponse = errors.New("response is not a JSON object")
	ErrChain    = errors.New("not the bytes of a chain")
)

// version is that of the canonical form. Keys of two versions are never equal, so that a change of the form folds
// less for a while, and never wrongly.
const version = 1

// Keys is the chain of an exchange: an exchange folds into those that have its Own among their Earlier. The time it
// takes grows with the size of the texts and with nothing else. An object that has two members of one name cannot be read: which
// of them counts would depend on who reads.
func Keys(messages, response []byte) (Chain, error) {
	s := borrow()
	defer s.giveBack()
	var c Chain
	if !valid(messages) || first(messages) != '[' {
		return c, ErrMessages
	}
	if !valid(response) || first(response) != '{' {
		return c, ErrResponse
	}
	at := space(messages, space(messages, 0)+1)
	link := [sha256.Size]byte{version}
	for messages[at] != ']' {
		if messages[at] != '{' {
			return c, ErrMessages
		}
		at = s.read(messages, at)
		role, ok := s.role()
		if !ok {
			return c, ErrMessages
		}
		link = s.link(link, role)
		if string(role) == assistant {
			s.keys = append(s.keys, Key(link[:]))
		}
		at = next(messages, at)
	}
	s.read(response, space(response, 0))
	own := s.link(link, []byte(assistant))
	return Chain{Own: Key(own[:]), Prompt: Key(link[:]), Earlier: append([]Key(nil), s.keys...)}, nil
}

// link is the hash of a conversation that goes on with the message that was read. The links between are whole hashes: only
// what is kept is cut.
func (s *scratch) link(before [sha256.Size]byte, role []byte) [sha256.Size]byte {
	s.out = append(s.out[:0], before[:]...)
	s.message(role)
	return sha256.Sum256(s.out)
}

// Bytes is a chain as it is stored: 33 bytes, and 16 for each earlier turn. Of the zero Chain it is nil.
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

// Parse reads what Bytes wrote.
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
