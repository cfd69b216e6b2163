package redact

import (
	"fmt"
	"strconv"
	"strings"
)

// A shape is what a kind of token looks like, read from left to right without going back.
type shape struct {
	pieces []piece
	secret int  // the piece that the secret begins with; what is before it only tells what it is
	fold   bool // letters of its literals stand for both cases
	inside bool // it may stand right behind a letter or digit: its prefix is like no other text
	whole  bool // it may not be followed by a letter or digit
	strict bool // nor may it stand behind a dash or an underscore
}

// A piece is a literal, or so many characters of a class.
type piece struct {
	literal string
	of      class
	least   int
	most    int
}

const unbounded = 1 << 30

// shaped reads the way in which the rules write shapes: text stands for itself, {x:4} for four characters of the class x,
// {x:4,} for four or more and {x:4,8} for four to eight. The secret begins at a caret, or else with the shape. A tilde
// in front folds case.
func shaped(text string) shape {
	var s shape
	text, s.fold = strings.CutPrefix(text, "~")
	for text != "" {
		switch text[0] {
		case '^':
			s.secret, text = len(s.pieces), text[1:]
		case '{':
			spec, rest, _ := strings.Cut(text[1:], "}")
			s.pieces, text = append(s.pieces, counted(spec)), rest
		default:
			n := strings.IndexAny(text, "{^")
			if n < 0 {
				n = len(text)
			}
			s.pieces, text = append(s.pieces, piece{literal: text[:n]}), text[n:]
		}
	}
	prefix := s.pieces[0].literal
	s.inside = len(prefix) >= 6 || prefix == ""
	s.strict = len(prefix) <= 3
	last := s.pieces[len(s.pieces)-1]
	s.whole = len(prefix) < 6 && last.literal == "" && last.most != unbounded
	return s
}

func counted(spec string) piece {
	least, most, ranged := strings.Cut(spec[2:], ",")
	p := piece{of: byLetter[spec[0]]}
	var err error
	if p.least, err = strconv.Atoi(least); err != nil || p.of == 0 && spec[0] != 'd' {
		panic(fmt.Sprintf("no shape: %q", spec))
	}
	switch {
	case !ranged:
		p.most = p.least
	case most == "":
		p.most = unbounded
	default:
		if p.most, err = strconv.Atoi(most); err != nil {
			panic(fmt.Sprintf("no shape: %q", spec))
		}
	}
	return p
}

// first is what may stand at the first places of a shape, as far as its least length tells.
func (s *shape) first(places int) [][]byte {
	var all [][]byte
	for _, p := range s.pieces {
		for i := range len(p.literal) {
			all = append(all, []byte{p.literal[i]})
		}
		for range p.least {
			if all = append(all, []byte(members[p.of])); len(all) > places {
				break
			}
		}
		if len(all) >= places || p.least != p.most && p.literal == "" {
			break
		}
	}
	return all[:min(len(all), places)]
}

// match is the secret of a shape that begins at at.
func (s *scanner) match(of *shape, at int) (from, to int, ok bool) {
	from = at
	if first := of.pieces[0].literal; !s.literal(first, at, of.fold) || !of.inside && !s.begins(at, of.strict) {
		return 0, 0, false
	}
	for i := range of.pieces {
		if i == of.secret {
			from = at
		}
		p := &of.pieces[i]
		if p.literal != "" {
			if !s.literal(p.literal, at, of.fold) {
				return 0, 0, false
			}
			at += len(p.literal)
			continue
		}
		end := min(s.run(p.of, at), at+p.most)
		if end-at < p.least {
			return 0, 0, false
		}
		at = end
	}
	if of.whole && at < len(s.text) && is(s.text[at], alnum) {
		return 0, 0, false
	}
	return from, at, true
}

func (s *scanner) literal(text string, at int, fold bool) bool {
	if len(s.text)-at < len(text) {
		return false
	}
	here := s.text[at : at+len(text)]
	for i := range here {
		if here[i] != text[i] && (!fold || here[i]|0x20 != text[i]|0x20 || !is(text[i], letter)) {
			return false
		}
	}
	return true
}

// run is the end of the characters of a class that begin at at. It is remembered, so that text which is full of places
// where something may begin is read once per class.
func (s *scanner) run(of class, at int) int {
	known := &s.runs[of]
	if known.from <= at && at < known.to {
		return known.to
	}
	end := at
	for end < len(s.text) && is(s.text[end], of) {
		end++
	}
	*known = span{at, end}
	return end
}

// begins reports whether a word may begin at at: no letter or digit is before it, unless that ends an escape.
func (s *scanner) begins(at int, strict bool) bool {
	if at == s.floor {
		return true
	}
	c := s.text[at-1]
	if !is(c, alnum) {
		return !strict || c != '-' && c != '_'
	}
	return s.escaped(at)
}

// escaped reports whether an escape ends at at: \n, \u1234 or, in a URL, %3D.
func (s *scanner) escaped(at int) bool {
	t := s.text
	switch {
	case at >= 2 && t[at-2] == '\\':
		return breaks(t[at-1])
	case at >= 3 && t[at-3] == '%':
		return is(t[at-1], hexAny) && is(t[at-2], hexAny)
	case at >= 6 && t[at-6] == '\\' && t[at-5] == 'u':
		return is(t[at-1], hexAny) && is(t[at-2], hexAny) && is(t[at-3], hexAny) && is(t[at-4], hexAny)
	}
	return false
}

// breaks reports whether a backslash and c make a space of some kind.
func breaks(c byte) bool { return c == 'n' || c == 'r' || c == 't' || c == 'f' || c == 'b' }
