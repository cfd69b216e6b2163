package redact

import (
	"bytes"
	"math"
)

// worth reports whether what is assigned to a name may be the secret that the name speaks of.
func worth(to how, given []byte, o operand) bool {
	given = given[:min(len(given), 4*glance)]
	l := looks(given)
	if l.digits == 0 && to != password && to != vendor {
		return false
	}
	if len(given) < 6 || stands(given) || bytes.Contains(given, []byte("://")) || o.comma && to == key && o.quote == 0 && bytes.ContainsAny(given, "_.:") {
		return false
	}
	if to == password {
		switch {
		case l.distinct < 4 || l.letters == 0 || o.quote == 0 && l.numeric:
			return false
		case l.digits+l.symbols == 0:
			return (o.quote != 0 || o.tight) && l.pairs >= 5 && l.usual*10 < l.pairs*4
		case o.comma:
			return l.drawn(2.75)
		case o.quote != 0:
			return true
		case o.tight:
			return !l.english() || !bytes.ContainsAny(given, "./")
		}
		return l.drawn(2.5)
	}
	switch {
	case given[0] == '/' || given[0] == '.' || bytes.HasPrefix(bytes.TrimLeft(given, "-"), []byte("0x")):
		return false
	case to == vendor:
		return len(given) >= 14 && (l.drawn(2.5) || l.turns >= 3 && !l.english())
	case to == secret || o.scheme:
		return len(given) >= 8 && l.drawn(2.75)
	}
	return len(given) >= 10 && l.letters >= 3 && l.drawn(3.3) && !uuid(given)
}

// A look is what can be told of a text at a glance.
type look struct {
	size, distinct           int
	digits, letters, symbols int     // symbols are neither, nor what joins words
	pairs, usual             int     // letters that stand together, and those which often do so in English
	turns, numbers           int     // from lower to upper case, and digits in a row
	entropy                  float64 // bits per character
	hex, numeric             bool
}

// glance is how much of a text is looked at.
const glance = 64

func looks(text []byte) (l look) {
	text = text[:min(len(text), glance)]
	var count [256]uint8
	l.size, l.hex, l.numeric = len(text), true, true
	var last byte
	for _, c := range text {
		if count[c]++; count[c] == 1 {
			l.distinct++
		}
		switch {
		case is(c, digit):
			if l.digits++; !is(last, digit) {
				l.numbers++
			}
		case is(c, letter):
			l.letters++
			switch {
			case !is(last, letter):
			case last >= 'a' && c < 'a':
				l.turns++
				fallthrough
			default:
				l.pairs++
				if usual[(last|0x20)-'a']>>((c|0x20)-'a')&1 != 0 {
					l.usual++
				}
			}
		case c != '_' && c != '-' && c != '.' && c != '/' && c != ':':
			l.symbols++
		}
		l.hex = l.hex && (is(c, hexAny) || c == '-' || c == ':')
		l.numeric = l.numeric && (is(c, digit) || c == '.' || c == '-' || c == '+' || c|0x20 == 'e')
		last = c
	}
	sum := 0.0
	for _, c := range text {
		if n := count[c]; n > 0 {
			sum += weights[n]
			count[c] = 0
		}
	}
	if l.size > 0 {
		l.entropy = math.Log2(float64(l.size)) - sum/float64(l.size)
	}
	return l
}

// weights are n times the logarithm of n.
var weights = func() (of [glance + 1]float64) {
	for n := 1; n <= glance; n++ {
		of[n] = float64(n) * math.Log2(float64(n))
	}
	return of
}()

// drawn reports whether a text looks as if drawn by lot: of letters and digits, with that much entropy, and not of words.
func (l look) drawn(entropy float64) bool {
	return l.digits > 0 && l.letters > 1 && l.entropy >= entropy && !l.english()
}

// english reports whether the letters of a text go together as those of words do.
func (l look) english() bool {
	mixed := l.hex && l.size >= 16 || l.numbers > 2 && l.turns > 1
	return !mixed && l.pairs >= 5 && l.usual*10 >= l.pairs*6
}

// usual has, for every letter, those that often come after it in English: the pairs which make up nine tenths of a text.
var usual = func() (of [26]uint32) {
	const pairs = "thheineranreonatenndtiesorteofedisitalarstto" +
		"ntngsehaasouioleveco" + "medehiriroicneearacelichllbemasiomurcaeltalansdifohopeecprnoctusacotil" +
		"trlyncetutsssorsunlowageiewheewiemadolrtpowenaulnitsmoowpaimmiaishirsuidosiviaamficiviplig" +
		"tuevldrympfeblabghtyopwosaayexkefrooavagifapgrodbospppdodueyoubuckscppssuprcauexiz"
	for i := 0; i+1 < len(pairs); i += 2 {
		of[pairs[i]-'a'] |= 1 << (pairs[i+1] - 'a')
	}
	return of
}()

// varied reports whether a token is more than a prefix and a filler.
func varied(text []byte) bool {
	var seen [256]bool
	n := 0
	for _, c := range text[max(0, len(text)-glance):] {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n >= 7
}

// stands reports whether a text stands for a secret that is put in elsewhere, or has been taken out.
func stands(text []byte) bool {
	if len(text) == 0 || bytes.Contains(text, []byte(Mark)) {
		return true
	}
	rest := text[1:]
	switch text[0] {
	case '<', '{':
		return true
	case '$':
		return len(rest) == 0 || rest[0] == '{' || rest[0] == '(' || all(rest, func(c byte) bool { return c == '_' || is(c, up) }) ||
			all(rest, func(c byte) bool { return c == '_' || is(c, letter) })
	case '%':
		return len(rest) < 3 || rest[0] == '(' || rest[0] == '{'
	}
	return all(rest, func(c byte) bool { return c == text[0] }) || all(text, func(c byte) bool { return !is(c, alnum) })
}

func all(text []byte, in func(byte) bool) bool {
	for _, c := range text {
		if !in(c) {
			return false
		}
	}
	return true
}

// uuid reports whether a text is a UUID, which names more often than it opens.
func uuid(text []byte) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range text {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && !is(c, hexAny) {
			return false
		}
	}
	return true
}
