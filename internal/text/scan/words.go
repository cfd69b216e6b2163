package scan

// A WordSet is a bit set of wanted words: bit i is the i-th argument of NewWords.
type WordSet uint8

// Words are the wanted words of a scan, indexed by length: at most eight words of at most sixteen bytes each.
type Words struct {
	byLength [17][]wantedWord
}

type wantedWord struct {
	text string
	bit  WordSet
}

// NewWords indexes the words. The first one is the lowest bit of a WordSet. It panics when a word is too long.
func NewWords(all ...string) *Words {
	w := &Words{}
	for i, text := range all {
		w.byLength[len(text)] = append(w.byLength[len(text)], wantedWord{text, 1 << i})
	}
	return w
}

// match returns the bit of the word that equals inner, or 0.
func (w *Words) match(inner []byte) WordSet {
	for _, one := range w.byLength[len(inner)] {
		if string(inner) == one.text {
			return one.bit
		}
	}
	return 0
}
