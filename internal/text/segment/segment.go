// Package segment finds the family of a system prompt, one prompt at a time: the prompts that a program makes from one
// template are of one family, whatever it puts in, and through light edits of the template. Names are made of the
// prompts alone, so that they are the same after a restart and on every node.
package segment

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode/utf8"

	"sovereign/internal/text/sketch"
)

// Exact returns a name of the exact bytes of a prompt, such as v_0123456789abcdef. It is empty for an empty prompt.
func Exact(system string) string { return name("v_", system) }

// Name returns the name of the family that this prompt begins, such as seg_0123456789abcdef. It is the same for all
// prompts of one Template, and empty for an empty prompt.
func Name(system string) string { return name("seg_", Template(system)) }

// alphabet is the alphabet of ids, as in package id.
var alphabet = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// name encodes 80 bits of the text's hash: among a billion texts two share a name with probability one in two million.
func name(prefix, text string) string {
	if text == "" {
		return ""
	}
	hash := sha256.Sum256([]byte(text))
	return prefix + alphabet.EncodeToString(hash[:10])
}

// A Print is the stored fingerprint of a prompt: the sketch of its Template and, for a long one, of its head and tail.
type Print struct {
	long bool
	of   [3]sketch.Sketch
}

// The parts of a prompt that are sketched.
const (
	whole = iota
	head
	tail
)

const (
	// endSize is how many bytes an end has, about 65 words. It has to be as long as what a program writes around what
	// it puts in, and longer than the common preamble of different prompts of one organization.
	endSize = 400

	// longSize is the minimum length of a prompt whose head and tail are sketched.
	longSize = 600
)

// Of returns the print of a prompt. It is stored with the family that the prompt begins, and is the same for all
// prompts of one Template.
func Of(system string) Print {
	text := Template(system)
	p := Print{long: len(text) >= longSize}
	p.of[whole] = sketch.Of(text)
	if p.long {
		p.of[head] = sketch.Of(text[:border(text, endSize)])
		p.of[tail] = sketch.Of(text[border(text, len(text)-endSize):])
	}
	return p
}

// border returns the last offset up to at where a word ends, or at least no character is split.
func border(text string, at int) int {
	const longestWord = 32
	if space := strings.LastIndexAny(text[at-longestWord:at], " \t\n"); space >= 0 {
		return at - longestWord + space
	}
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// sketches returns the sketches of p that are set.
func (p *Print) sketches() []sketch.Sketch {
	if p.long {
		return p.of[:]
	}
	return p.of[:whole+1]
}

// Bytes returns the stored form of p.
func (p Print) Bytes() []byte {
	var b []byte
	for _, s := range p.sketches() {
		b = append(b, s.Bytes()...)
	}
	return b
}

// ParsePrint decodes the result of Bytes.
func ParsePrint(b []byte) (Print, error) {
	p := Print{long: len(b) == 3*sketch.Size}
	parts := p.sketches()
	if len(b) != len(parts)*sketch.Size {
		return Print{}, fmt.Errorf("a print has %d bytes or %d, not %d", sketch.Size, 3*sketch.Size, len(b))
	}
	for i := range parts {
		part, err := sketch.Parse(b[i*sketch.Size : (i+1)*sketch.Size])
		if err != nil {
			return Print{}, fmt.Errorf("parse print: %w", err)
		}
		parts[i] = part
	}
	return p, nil
}
