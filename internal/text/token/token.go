// Package token bounds the number of tokens of a text without a tokenizer: one pass, one table lookup per byte, and no
// allocation.
//
// High is the size of a hold before a request runs. Low is charged when the provider reports no count. Bounds documents
// their guarantees and the vocabularies that they were checked against.
package token

// Bounds are a lower and an upper bound of the number of tokens of a text.
//
// Low is the number of positions where a word or a number begins after a space or punctuation. No token of any
// vocabulary that was checked spans two such positions, so Low is never above the count, for any text. It is close to
// the count in prose with spaces between words, and far below it in other text (Chinese, Japanese, Thai, base64).
//
// High sums a cost for each byte, given the byte before it. A byte costs a whole token, because some vocabularies fall
// back to bytes, except inside English words, where a frequent pair of letters costs a tenth. That High is not below
// the count is measured, not proven: on the corpus of this package with every vocabulary in testdata/counts.json, and
// on random mixtures of its texts. High is about twice the count of English prose, and higher for other texts, at most
// their number of bytes. For a text constructed against the table, such as repeated short words of the same three
// letters, the count can be two and a half times High.
//
// High is never above the number of bytes by more than four, since no vocabulary makes more than one token of a byte. A
// vocabulary that normalizes the text first (that of Claude 2 does) can exceed High by the bytes that this adds.
type Bounds struct {
	Low, High int64
	Media     int64 // media in a body, each of which High counts as Medium
}

// Text bounds a plain text in UTF-8.
func Text(text []byte) Bounds {
	var m Meter
	m.Add(text)
	return m.Bounds()
}

// A Meter bounds a text that arrives in pieces: its bounds are those of the whole text, wherever it was cut. The bounds
// of pieces cannot be added, since a piece may begin inside a word. The zero Meter is ready for use.
type Meter struct {
	sum    uint32 // the sum of the steps of the current block
	before byte   // the last byte that was added
	filled int    // the number of bytes in the current block
	bytes  int64
	tenths int64
	words  int64
}

const (
	block = 64 // bytes that are classified together as prose or as one long run
	spare = 4  // tokens for a space that a vocabulary puts before the text, a trailing space, and a truncated word
)

// Add adds the next piece of the text.
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

// price returns the cost of the current block in tenths of a token. A block with very few gaps between letters is not
// prose and costs a token for each byte. Every block costs at least three tenths of that, so that a text of only
// frequent pairs is not almost free.
func (m *Meter) price() int64 {
	tenths, filled := int64(m.sum&0xffff), int64(m.filled)
	if gaps := int64(m.sum >> gapShift & 0xff); gaps < filled/16 {
		return max(tenths, 10*filled)
	}
	return max(tenths, 3*filled)
}

func wordsIn(sum uint32) int64 { return int64(sum >> wordShift) }

// Bounds returns the bounds of the text so far.
func (m *Meter) Bounds() Bounds {
	if m.bytes == 0 {
		return Bounds{}
	}
	high := (m.tenths + m.price() + 9) / 10
	return Bounds{Low: m.seen(), High: min(high, m.bytes) + spare}
}

// seen returns the number of word beginnings so far.
func (m *Meter) seen() int64 { return m.words + wordsIn(m.sum) }
