package scan

import "iter"

// Elements iterates over the elements of a JSON array. It stops at the first syntax error. Elements are skipped as
// members are, without validation of what is nested in them.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := skipSpace(array, 0)
		if at == len(array) || array[at] != '[' {
			return
		}
		s := scanner{text: array}
		for at = skipSpace(array, at+1); at < len(array) && array[at] != ']'; {
			end, err := s.skipValue(at, 0)
			if err != nil || !yield(array[at:end]) {
				return
			}
			if at = skipSpace(array, end); at == len(array) || array[at] != ',' {
				return
			}
			at = skipSpace(array, at+1)
		}
	}
}
