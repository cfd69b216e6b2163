package redact

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A shape describes a token. It is matched from left to right without backtracking.
type shape struct {
	pieces      []piece
	secretFrom  int  // the piece with which the secret begins; pieces before it are context
	fold        bool // literals match both cases
	inside      bool // it may follow a letter or digit, because its prefix is distinctive
	wholeWord   bool // it may not be followed by a letter or digit
	strictStart bool // it may not follow a dash or an underscore
}

// A piece is a literal, or least to most characters of a class.
type piece struct {
	literal string
	of      class
	least   int
	most    int
}

const unbounded = 1 << 30

// parseShape parses the notation of rules. Text is literal, {x:4} is four characters of class x, {x:4,} four or more,
// and {x:4,8} four to eight. The secret begins at a caret, or else with the shape. A leading tilde folds case.
func parseShape(text string) shape {
	var s shape
	text, s.fold = strings.CutPrefix(text, "~")
	for text != "" {
		switch text[0] {
		case '^':
			s.secretFrom, text = len(s.pieces), text[1:]
		case '{':
			spec, rest, _ := strings.Cut(text[1:], "}")
			s.pieces, text = append(s.pieces, parseClass(spec)), rest
		default:
			n := strings.IndexAny(text, "{^")
			if n < 0 {
				n = len(text)
			}
			s.pieces, text = append(s.pieces, piece{literal: text[:n]}), text[n:]
		}
	}
	prefix := s.pieces[0].literal
	s.inside = len(prefix) >= 6 || prefix == "" || prefix[0] == '\\' // an escape ends the word before it
	s.strictStart = len(prefix) <= 3
	last := s.pieces[len(s.pieces)-1]
	s.wholeWord = len(prefix) < 6 && last.literal == "" && last.most != unbounded
	return s
}

// parseClass parses the inside of {x:4,8}. It panics on a mistake in rules.
func parseClass(spec string) piece {
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

// leadingChars returns the characters possible at each of the first places of a shape, up to the first piece of
// variable length.
func (s *shape) leadingChars(places int) [][]byte {
	var all [][]byte
	for _, p := range s.pieces {
		for i := range len(p.literal) {
			all = append(all, []byte{p.literal[i]})
		}
		for range p.least {
			if all = append(all, []byte(classChars[p.of])); len(all) > places {
				break
			}
		}
		if len(all) >= places || p.least != p.most && p.literal == "" {
			break
		}
	}
	return all[:min(len(all), places)]
}

// match matches a shape at at and returns the extent of the secret.
func (s *scanner) match(of *shape, at int) (from, to int, ok bool) {
	from = at
	if first := of.pieces[0].literal; !s.literal(first, at, of.fold) || !of.inside &&
		!s.atWordStart(at, of.strictStart) {
		return 0, 0, false
	}
	for i := range of.pieces {
		if i == of.secretFrom {
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
	if of.wholeWord && at < len(s.text) && is(s.text[at], alnum) {
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

// run returns the end of the run of a class that begins at at. The last run of each class is cached, so that a run with
// many candidates in it is read once.
func (s *scanner) run(of class, at int) int {
	known := &s.runs[of]
	if known.from <= at && at < known.to {
		return known.to
	}
	end := at
	for end < len(s.text) && is(s.text[end], of) {
		end++
	}
	s.steps += end - at
	*known = span{at, end}
	return end
}

// A trim is a run without its trailing punctuation: text[to:end] is punctuation, and to is at least from.
type trim struct{ from, to, end int }

// runTrimmed returns the end of the run of a class that begins at at, without trailing punctuation. The last result of
// each class is cached: otherwise every candidate in a run would read the punctuation at its end again.
func (s *scanner) runTrimmed(of class, at int) int {
	end, known := s.run(of, at), &s.trims[of]
	if known.end != end || at < known.from {
		to := at + len(bytes.TrimRight(s.text[at:end], ".:?"))
		s.steps += end - to
		*known = trim{at, to, end}
	}
	return max(known.to, at)
}

// atWordStart reports whether a word may begin at at: the character before it is not a letter or digit, or it ends an
// escape. A strict start may not follow a dash or an underscore either.
func (s *scanner) atWordStart(at int, strict bool) bool {
	if at == s.floor {
		return true
	}
	c := s.text[at-1]
	if !is(c, alnum) {
		return !strict || c != '-' && c != '_'
	}
	return s.afterEscape(at)
}

// afterEscape reports whether an escape ends at at: \n, \u1234 or, in a URL, %3D.
func (s *scanner) afterEscape(at int) bool {
	t := s.text
	switch {
	case at >= 2 && t[at-2] == '\\':
		return isSpaceEscape(t[at-1])
	case at >= 3 && t[at-3] == '%':
		return is(t[at-1], hexAny) && is(t[at-2], hexAny)
	case at >= 6 && t[at-6] == '\\' && t[at-5] == 'u':
		return is(t[at-1], hexAny) && is(t[at-2], hexAny) && is(t[at-3], hexAny) && is(t[at-4], hexAny)
	}
	return false
}

// isSpaceEscape reports whether a backslash and c are the escape of a white-space or control character.
func isSpaceEscape(c byte) bool { return c == 'n' || c == 'r' || c == 't' || c == 'f' || c == 'b' }
