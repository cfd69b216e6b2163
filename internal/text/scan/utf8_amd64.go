//go:build !purego

package scan

// utf8Prefix validates the leading whole blocks of text. It returns ok false when they are not UTF-8 without NUL, and
// otherwise the length n of the whole characters in them; a character that continues after the last block is left out.
// It returns 0, true when it did not check anything: without AVX2, or when text is shorter than a block.
func utf8Prefix(text []byte) (n int, ok bool) {
	blocks := len(text) / blockSize
	if !hasAVX2 || blocks == 0 {
		return 0, true
	}
	if !utf8Blocks(&text[0], blocks, &utf8Tables) {
		return 0, false
	}
	n = blocks * blockSize
	for back := range maxPending {
		if text[n-1-back] >= 0xC0 { // a leading byte: its character may continue after the blocks
			return n - 1 - back, true
		}
	}
	return n, true
}

// utf8Blocks reports whether n blocks are UTF-8 without NUL. The last character may be incomplete. It requires AVX2.
//
//go:noescape
func utf8Blocks(text *byte, n int, tables *[3][16]byte) bool

// maxPending is the most bytes that a character can have before its last byte.
const maxPending = 3

// The errors of two adjacent bytes, one bit each, as in Keiser and Lemire, Validating UTF-8 In Less Than One
// Instruction Per Byte (2020). Three table lookups, by the high and low nibble of the first byte and the high nibble of
// the second, give the errors that each nibble allows. An error is present when all three lookups have its bit.
const (
	tooShort         = 1 << iota // a leading byte not followed by a continuation byte
	tooLong                      // a continuation byte after an ASCII byte
	overlong3                    // E0 80 to E0 9F
	tooLarge                     // F4 90 and more
	surrogate                    // ED A0 to ED BF
	overlong2                    // C0 and C1
	overlong4                    // F0 80 to F0 8F
	twoContinuations             // two continuation bytes, valid only after a leading byte of three or four bytes
	tooLarge1000     = overlong4 // F5 80 and more, up to FF 8F
)

// utf8Tables are the lookup tables: by the high and the low nibble of the first byte, and by the high nibble of the
// second byte.
var utf8Tables = func() (r [3][16]byte) {
	const either = tooShort | tooLong | twoContinuations // errors that do not depend on the low nibble
	for half := range 16 {
		switch {
		case half < 0x8:
			r[0][half], r[2][half] = tooLong, tooShort
		case half < 0xC:
			r[0][half], r[2][half] = twoContinuations, tooLong|twoContinuations|overlong2
		default:
			r[0][half], r[2][half] = tooShort, tooShort
		}
		r[1][half] = either
		if half >= 0x4 {
			r[1][half] |= tooLarge
		}
		if half >= 0x5 {
			r[1][half] |= tooLarge1000
		}
	}
	r[0][0xC] |= overlong2
	r[0][0xE] |= overlong3 | surrogate
	r[0][0xF] |= tooLarge | tooLarge1000 | overlong4
	r[1][0x0] |= overlong2 | overlong3 | overlong4
	r[1][0x1] |= overlong2
	r[1][0xD] |= surrogate
	r[2][0x8] |= overlong3 | overlong4 | tooLarge1000
	r[2][0x9] |= overlong3 | tooLarge
	r[2][0xA] |= surrogate | tooLarge
	r[2][0xB] |= surrogate | tooLarge
	return r
}()
