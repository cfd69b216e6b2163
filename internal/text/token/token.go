// Package token bounds how many tokens a text is, without a tokenizer: one pass, one table look-up per byte, no allocation.
//
// High sizes a hold before a request runs, Low is what is charged when nothing better is known. What each of them
// promises, and against which vocabularies it was checked, is told at Bounds.
package token

// Bounds are what a text is at least and at most, in tokens.
//
// Low is the number of places where a word or a number begins after a space or after punctuation. No token of any
// vocabulary that was checked spans two such places, so Low is never over the count, whatever the text. It is close to
// it in prose that puts spaces between words, and coarse where nothing does (Chinese, Japanese, Thai, base64).
//
// High adds up what each byte costs after the byte before it. Every byte costs a whole token, because some
// vocabulary falls back to that, except where letters follow one another as they do in English words: there a frequent pair
// costs a tenth. That High is not under the count is measured, not proven: over the corpus of this package for every
// vocabulary in testdata/counts.json, and over random mixtures of its texts. It is about twice the count of English prose, and
// more of other texts, up to all their bytes. A text that is made against the table, such as short words of the same three letters
// over and over, can be two and a half times what High says.
//
// High is never over the number of bytes by more than four, since no vocabulary makes more than one token of a byte. One that
// normalizes a text first (that of Claude 2 does) may count by as many tokens more as the text grows by.
type Bounds struct{ Low, High int64 }

// Text bounds a plain text in UTF-8.
func Text(text []byte) Bounds {
	var m Meter
	m.Add(text)
	return m.Bounds()
}

// A Meter bounds a text that arrives in pieces, cut anywhere: its bounds are those of the whole text. Bounds of the pieces do
// not add up, since a piece may begin in the middle of a word. The zero Meter has seen nothing.
type Meter struct {
	sum    uint32 // of the steps in the block that is open
	before byte   // the last one that was added
	filled int    // bytes in the open block
	bytes  int64
	tenths int64
	words  int64
}

const (
	block = 64 // bytes that are judged together: are these words, or one long run?
	spare = 4  // tokens: a space that a vocabulary puts before the text, a last space that stands alone, a word that was cut
)

// Add takes the next piece.
func (m *Meter) Add(piece []byte) {
	m.bytes += int64(len(piece))
	for len(piece) > 0 {
		part := piece[:min(len(piece), block-m.filled)]
		piece = piece[len(part):]
		sum := m.sum + steps[pair(m.before, part[0])]
		for i := 1; i < len(part); i++ {
			sum += steps[pair(part[i-1], part[i])]
		}
		m.sum, m.before = sum, part[len(part)-1]
		m.filled += len(part)
		if m.filled == block {
			m.tenths += m.price()
			m.words += wordsIn(m.sum)
			m.sum, m.filled = 0, 0
		}
	}
}

// price is what the open block costs in tenths of a token. A block with hardly a gap between its letters is no prose, and costs
// a token for each byte. No block costs less than three tenths of that, so that a text of nothing but frequent pairs is not
// almost free.
func (m *Meter) price() int64 {
	tenths, filled := int64(m.sum&0xffff), int64(m.filled)
	if gaps := int64(m.sum >> gapShift & 0xff); gaps < filled/16 {
		return max(tenths, 10*filled)
	}
	return max(tenths, 3*filled)
}

func wordsIn(sum uint32) int64 { return int64(sum >> wordShift) }

// Bounds are those of everything that was added.
func (m *Meter) Bounds() Bounds {
	if m.bytes == 0 {
		return Bounds{}
	}
	high := (m.tenths + m.price() + 9) / 10
	return Bounds{Low: m.seen(), High: min(high, m.bytes) + spare}
}

// seen is the number of words that have begun.
func (m *Meter) seen() int64 { return m.words + wordsIn(m.sum) }
