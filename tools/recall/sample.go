// Package recall holds what redaction finds against the rules of gitleaks. It is a module of its own, so that gitleaks
// is no dependency of the product.
package recall

import (
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"
)

// A sampler makes texts that a regular expression matches.
type sampler struct {
	expr string
	rng  *rand.Rand
}

// sample is a text that expr matches. What is the secret is drawn from all that expr allows, with its literals as expr
// writes them; what is around it is kept short, as people write it.
func sample(expr string, rng *rand.Rand) (string, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return "", err
	}
	s := sampler{expr, rng}
	var text strings.Builder
	s.write(&text, tree, tree.MaxCap() == 0)
	return text.String(), nil
}

func (s *sampler) write(text *strings.Builder, tree *syntax.Regexp, secret bool) {
	switch tree.Op {
	case syntax.OpLiteral:
		s.literal(text, tree, secret)
	case syntax.OpCharClass:
		text.WriteRune(s.pick(tree.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		text.WriteByte('.') // which most that write it mean
	case syntax.OpCapture:
		s.write(text, tree.Sub[0], true)
	case syntax.OpConcat:
		for _, sub := range tree.Sub {
			s.write(text, sub, secret)
		}
	case syntax.OpAlternate:
		s.write(text, tree.Sub[s.rng.IntN(len(tree.Sub))], secret)
	case syntax.OpQuest:
		s.times(text, tree, 0, 1, secret)
	case syntax.OpStar:
		s.times(text, tree, 0, -1, secret)
	case syntax.OpPlus:
		s.times(text, tree, 1, -1, secret)
	case syntax.OpRepeat:
		s.times(text, tree, tree.Min, tree.Max, secret)
	default: // what takes no room, such as a boundary
	}
}

// times writes the operand of a repetition as often as it may come.
func (s *sampler) times(text *strings.Builder, tree *syntax.Regexp, least, most int, secret bool) {
	const more, around = 40, 1
	if most < 0 || most > least+more {
		most = least + more
	}
	if !secret {
		most = min(most, least+around)
	}
	sub := tree.Sub[0]
	if sub.Op == syntax.OpAnyChar || sub.Op == syntax.OpAnyCharNotNL {
		sub = &syntax.Regexp{Op: syntax.OpCharClass, Rune: []rune{'0', '9', 'A', 'Z', 'a', 'z'}}
	}
	for range least + s.rng.IntN(most-least+1) {
		s.write(text, sub, secret)
	}
}

const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func (s *sampler) literal(text *strings.Builder, tree *syntax.Regexp, secret bool) {
	literal := string(tree.Rune)
	if tree.Flags&syntax.FoldCase != 0 && secret {
		if at := strings.Index(strings.ToLower(s.expr), strings.ToLower(literal)); at >= 0 {
			literal = s.expr[at : at+len(literal)]
		}
	} else if tree.Flags&syntax.FoldCase != 0 {
		if literal = strings.ToLower(literal); s.rng.IntN(2) == 0 {
			literal = strings.ToUpper(literal)
		}
	}
	text.WriteString(literal)
}

// pick draws a character of a class: a letter or digit if there is one nine times out of ten, else any that can be
// seen.
func (s *sampler) pick(ranges []rune) rune {
	var usual, visible []rune
	for i := 0; i < len(ranges); i += 2 {
		for c := max(ranges[i], ' '); c <= min(ranges[i+1], '~'); c++ {
			visible = append(visible, c)
			if strings.ContainsRune(digits, c) {
				usual = append(usual, c)
			}
		}
	}
	if len(visible) == 0 {
		return ranges[0]
	}
	if i := slices.Index(visible, '\\'); i >= 0 && len(visible) > 1 {
		visible = slices.Delete(visible, i, i+1)
	}
	if len(usual) > 0 && s.rng.IntN(10) > 0 {
		visible = usual
	}
	return visible[s.rng.IntN(len(visible))]
}
