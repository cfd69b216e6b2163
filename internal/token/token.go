// Package token bounds how many tokens a text is, without a tokenizer: one pass, two table look-ups per byte, no allocation.
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
// vocabulary falls back to that, except where letters follow one another as they do in words: there a frequent pair costs a
// tenth. That it is not under the count is measured, not proven: over the corpus of this package, for every vocabulary in
// testdata/counts.json, and for random mixtures of its texts. A text that is made against the table, such as short words of one
// frequent pair over and over, can be up to three times what High says.
//
// High is never over the number of bytes by more than four, which is what a vocabulary that works on bytes can reach.
// A vocabulary that normalizes a text first and so makes it longer can be over it, by as many tokens as it adds bytes.
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
	before class  // of the last byte
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
		sum, before := m.sum, m.before
		for _, b := range part {
			now := classes[b]
			sum += steps[before&31][now&31]
			before = now
		}
		m.sum, m.before = sum, before
		m.filled += len(part)
		if m.filled == block {
			m.tenths += m.price()
			m.words += wordsIn(m.sum)
			m.sum, m.filled = 0, 0
		}
	}
}

// price is what the open block costs in tenths of a token. A block with hardly a gap between its letters is no prose, and costs a token for
// each byte. No block costs less than a quarter of that, so that a text of nothing but frequent pairs is not almost free.
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
