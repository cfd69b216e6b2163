package scan

// A Set is some of the words that are looked for.
type Set uint8

// Words are what a scan looks for: at most eight, of at most sixteen letters.
type Words struct {
	byLength [17][]sought
}

type sought struct {
	text string
	is   Set
}

// NewWords makes them ready; the first is the lowest bit of a Set.
func NewWords(all ...string) *Words {
	w := &Words{}
	for i, text := range all {
		w.byLength[len(text)] = append(w.byLength[len(text)], sought{text, 1 << i})
	}
	return w
}

// match is the word that inner is, if it is one.
func (w *Words) match(inner []byte) Set {
	for _, one := range w.byLength[len(inner)] {
		if string(inner) == one.text {
			return one.is
		}
	}
	return 0
}
