package scan

// texts is how much of a text, from its beginning on, is told to be UTF-8 without NUL, and whether it is: whole characters, of all blocks but perhaps a part of
// the last. It is nothing where it is not told.
func texts(text []byte) (n int, ok bool) {
	blocks := len(text) / block
	if !wide || blocks == 0 {
		return 0, true
	}
	if !textBlocks(&text[0], blocks, &rules) {
		return 0, false
	}
	n = blocks * block
	for back := range longest {
		if text[n-1-back] >= 0xC0 { // it may go on behind them
			return n - 1 - back, true
		}
	}
	return n, true
}

// textBlocks reports whether nothing is wrong in the next blocks. A character may go on behind the last. It needs AVX2.
//
//go:noescape
func textBlocks(text *byte, n int, rules *[3][16]byte) bool

// longest is how many bytes of a character may stand before its last: one less than it has at most.
const longest = 3

// What may be wrong with two bytes, the second of which follows the first. It is a bit for each, since what is wrong is told by the upper and
// the lower half of the first and by the upper half of the second, and only what all three tell is so.
const (
	cutShort   = 1 << iota // a character begins where another should go on
	goesOn                 // something goes on that has not begun
	long3                  // E0 80 to E0 9F, which fewer bytes can say
	beyond                 // F4 90 and more
	surrogate              // ED A0 to ED BF
	long2                  // C0 and C1
	long4                  // F0 80 to F0 8F
	goesOnLong             // goes on for a second time, which is right after a longer beginning
	beyondAll  = long4     // F5 80 and more, up to FF 8F
)

// rules are what each half tells: the upper and the lower one of the first byte, and the upper one of the second.
var rules = func() (r [3][16]byte) {
	const either = cutShort | goesOn | goesOnLong // of which the lower half tells nothing
	for half := range 16 {
		switch {
		case half < 0x8:
			r[0][half], r[2][half] = goesOn, cutShort
		case half < 0xC:
			r[0][half], r[2][half] = goesOnLong, goesOn|goesOnLong|long2
		default:
			r[0][half], r[2][half] = cutShort, cutShort
		}
		r[1][half] = either
		if half >= 0x4 {
			r[1][half] |= beyond
		}
		if half >= 0x5 {
			r[1][half] |= beyondAll
		}
	}
	r[0][0xC] |= long2
	r[0][0xE] |= long3 | surrogate
	r[0][0xF] |= beyond | beyondAll | long4
	r[1][0x0] |= long2 | long3 | long4
	r[1][0x1] |= long2
	r[1][0xD] |= surrogate
	r[2][0x8] |= long3 | long4 | beyondAll
	r[2][0x9] |= long3 | beyond
	r[2][0xA] |= surrogate | beyond
	r[2][0xB] |= surrogate | beyond
	return r
}()
