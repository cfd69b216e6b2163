package redact

import (
	"bytes"
	"math"
)

// plausibleSecret reports whether a value assigned to a name of this kind looks like a secret. Thresholds depend on the
// kind: a value of a password may be short, a value of a generic key must look random.
func plausibleSecret(to ruleKind, given []byte, o operand) bool {
	given = given[:min(len(given), 4*statsWindow)]
	l := statsOf(given)
	if l.digits == 0 && to != password && to != vendor {
		return false
	}
	if len(given) < 6 || isPlaceholder(given) || bytes.Contains(given, []byte("://")) || o.comma && to == key &&
		o.quote == 0 && bytes.ContainsAny(given, "_.:") {
		return false
	}
	if to == password {
		switch {
		case l.distinct < 4 || l.letters == 0 || o.quote == 0 && l.numeric:
			return false
		case l.digits+l.symbols == 0:
			return (o.quote != 0 || o.tight) && l.pairs >= 5 && l.commonPairs*10 < l.pairs*4
		case o.comma:
			return l.looksRandom(2.75)
		case o.quote != 0:
			return true
		case o.tight:
			return !l.english() || !bytes.ContainsAny(given, "./")
		}
		return l.looksRandom(2.5)
	}
	switch {
	case given[0] == '/' || given[0] == '.' || bytes.HasPrefix(bytes.TrimLeft(given, "-"), []byte("0x")):
		return false
	case to == vendor:
		return len(given) >= 14 && (l.looksRandom(2.5) || l.caseChanges >= 3 && !l.english())
	case to == secret || o.scheme:
		return len(given) >= 8 && l.looksRandom(2.75)
	}
	return len(given) >= 10 && l.letters >= 3 && l.looksRandom(3.3) && !isUUID(given)
}

// textStats are statistics of the first statsWindow characters of a text.
type textStats struct {
	size, distinct           int
	digits, letters, symbols int     // symbols excludes the separators _-./:
	pairs, commonPairs       int     // pairs of adjacent letters, and those of them that are common in English
	caseChanges, digitRuns   int     // changes from lower to upper case, and runs of digits
	entropy                  float64 // Shannon entropy, in bits per character
	hex, numeric             bool
}

// statsWindow bounds how much of a text is examined.
const statsWindow = 64

func statsOf(text []byte) (l textStats) {
	text = text[:min(len(text), statsWindow)]
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
				l.digitRuns++
			}
		case is(c, letter):
			l.letters++
			switch {
			case !is(last, letter):
			case last >= 'a' && c < 'a':
				l.caseChanges++
				fallthrough
			default:
				l.pairs++
				if commonBigrams[(last|0x20)-'a']>>((c|0x20)-'a')&1 != 0 {
					l.commonPairs++
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
			sum += nLog2N[n]
			count[c] = 0
		}
	}
	if l.size > 0 {
		l.entropy = math.Log2(float64(l.size)) - sum/float64(l.size)
	}
	return l
}

// nLog2N is n·log₂ n for every n up to statsWindow.
var nLog2N = func() (of [statsWindow + 1]float64) {
	for n := 1; n <= statsWindow; n++ {
		of[n] = float64(n) * math.Log2(float64(n))
	}
	return of
}()

// looksRandom reports whether a text has letters and digits, at least this entropy, and does not read as English.
func (l textStats) looksRandom(entropy float64) bool {
	return l.digits > 0 && l.letters > 1 && l.entropy >= entropy && !l.english()
}

// english reports whether at least six in ten letter pairs of a text are common in English.
func (l textStats) english() bool {
	mixed := l.hex && l.size >= 16 || l.digitRuns > 2 && l.caseChanges > 1
	return !mixed && l.pairs >= 5 && l.commonPairs*10 >= l.pairs*6
}

// commonBigrams has, for every letter, a bit set of the letters that often follow it in English: the pairs that make up
// about nine tenths of English text.
var commonBigrams = func() (of [26]uint32) {
	const pairs = "thheineranreonatenndtiesorteofedisitalarstto" +
		"ntngsehaasouioleveco" + "medehiriroicneearacelichllbemasiomurcaeltalansdifohopeecprnoctusacotil" +
		"trlyncetutsssorsunlowageiewheewiemadolrtpowenaulnitsmoowpaimmiaishirsuidosiviaamficiviplig" +
		"tuevldrympfeblabghtyopwosaayexkefrooavagifapgrodbospppdodueyoubuckscppssuprcauexiz"
	for i := 0; i+1 < len(pairs); i += 2 {
		of[pairs[i]-'a'] |= 1 << (pairs[i+1] - 'a')
	}
	return of
}()

// hasVariety reports whether the end of a token has at least seven distinct characters. It excludes placeholders such
// as a prefix followed by xxxx.
func hasVariety(text []byte) bool {
	var seen [256]bool
	n := 0
	for _, c := range text[max(0, len(text)-statsWindow):] {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n >= 7
}

// isPlaceholder reports whether a text is a placeholder for a secret: a template variable, a mark, or one repeated
// character.
func isPlaceholder(text []byte) bool {
	if len(text) == 0 || bytes.Contains(text, []byte(Mark)) {
		return true
	}
	rest := text[1:]
	switch text[0] {
	case '<', '{':
		return true
	case '$':
		return len(rest) == 0 || rest[0] == '{' || rest[0] == '(' ||
			all(rest, func(c byte) bool { return c == '_' || is(c, up) }) ||
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

// isUUID reports whether a text is a UUID. UUIDs are identifiers more often than secrets.
func isUUID(text []byte) bool {
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
