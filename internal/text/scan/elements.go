package scan

import "iter"

// Elements are those of an array, one after the other, up to its end or to what is no JSON. Like members they are skipped, and not read.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := space(array, 0)
		if at == len(array) || array[at] != '[' {
			return
		}
		s := scanner{text: array}
		for at = space(array, at+1); at < len(array) && array[at] != ']'; {
			end, err := s.skip(at, 0)
			if err != nil || !yield(array[at:end]) {
				return
			}
			if at = space(array, end); at == len(array) || array[at] != ',' {
				return
			}
			at = space(array, at+1)
		}
	}
}
