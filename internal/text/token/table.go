package token

// A class classifies a byte. Each lower-case letter is a class of its own.
type class uint8

const (
	gap    class = iota // may precede a word: line ends, tabs, and punctuation other than ' and _
	space               // may precede a word too, and belongs to the token of that word
	word                // begins a word: digits, and first bytes of letters that are not ASCII
	upper               // capital letters
	other               // every other byte
	letter              // a; the rest of the alphabet follows
)

// after holds the cost of a letter (column) after a letter (row), in tenths of a token; X is ten. The cost depends on
// how frequent the pair is in English words: one tenth for the most frequent pairs, a whole token for pairs that do not
// occur, and at least six tenths for a doubled letter. The last column is the cost of a space after the letter: few
// English words end in a, i, o or u, but many words of other languages do, and those are more tokens.
var after = [26]string{
	// bcdefghijklmnopqrstuvwxyz.
	"X534X96X5X8151X5X13177XX7X8", // a
	"2X9X1XXX25X1XX3XX5491XXX2X7", // b
	"1X6X1XX24X34XX1XX5915XXXXX7", // c
	"6XX61XXX2XX7XX4XX75X6XXX9X0", // d
	"4X42679XXXX652X79124X8X5XX1", // e
	"3X9X36XX1XX5XX1XX3753XXX7X2", // f
	"5X7X1X833XX7X42XX4695XXXXX0", // g
	"1XXX1XXX1XXXXX2XX6X47XXXXX4", // h
	"6735554XXXX44127X621X6XXX7X", // i
	"2XXX1XXX9XXXXX38XX3X1XXXXX5", // j
	"49XX1X8X2XXXX4XXXX2X8XXXXX0", // k
	"3XX519XX1XX6XX2XXX565XXX2X3", // l
	"15XX1XXX2XXX6X21XX5X4XXXXX4", // m
	"4X42291X4X99X74XXX2188XX9X2", // n
	"9744948X7X853174X154265XXX6", // o
	"1X991XX85XX2XX26X1535XXX6X5", // p
	"XXXXXXXXXXX8XXXXX6XX1XXXXX5", // q
	"2X77187X2X77652XX64468XX6X3", // r
	"6X6X1XX53XX8XX55XX614XXX7X0", // s
	"3X9X1XX11XX8XX49X4466XXX6X1", // t
	"5557377X5XX231X4X111XXXXXXX", // u
	"1XXX1XXX2XXXXX5XXXXXXXXXXX7", // v
	"1XXX1XX11XX9X52XX25XXX9XXX4", // w
	"4X3X28XX2XXXXX81XXX1XXXX9X0", // x
	"XX9X8XXX6XX67642X634XX9XXX0", // y
	"2XXX1XXX4XXXXX7XXXXXXXXXXX3", // z
}

const (
	whole = 10 // the cost, in tenths, of a byte that is not a letter inside a word

	// A step packs three counts into one word, so that a block is summed with one addition per byte: tenths of a token
	// in the low 16 bits, then gaps between letters, then word beginnings.
	gapShift  = 16
	wordShift = 24
)

// steps is the step of a byte after another byte. Of its 256 KiB a text uses little: its working set fits into the L1
// cache.
var steps = tabulate()

// pair is the index of two adjacent bytes in steps. It has their order in memory, so that one 16-bit load reads both.
func pair(before, now byte) uint16 { return uint16(before) | uint16(now)<<8 }

func tabulate() (of [1 << 16]uint32) {
	classes := classify()
	for before := range 256 {
		for now := range 256 {
			of[pair(byte(before), byte(now))] = step(classes[before], classes[now])
		}
	}
	return of
}

func classify() (of [256]class) {
	for b := range of {
		of[b] = other
	}
	for b := '!'; b <= '~'; b++ {
		of[b] = gap
	}
	for _, b := range "\x00\t\n\r" { // NUL precedes the first byte of a text
		of[b] = gap
	}
	of['\''], of['_'], of[' '] = other, other, space
	for b := '0'; b <= '9'; b++ {
		of[b] = word
	}
	for b := range 26 {
		of['A'+b], of['a'+b] = upper, letter+class(b)
	}
	// lower values begin symbols and no-break spaces, higher ones emoji; E2 and E3 begin symbols and wide spaces
	for b := 0xC3; b <= 0xED; b++ {
		of[b] = word
	}
	of[0xE2], of[0xE3] = other, other
	return of
}

func step(before, now class) uint32 {
	tenths := whole
	switch {
	case now >= letter && before >= letter:
		tenths = tenthsAfter(before, int(now-letter))
	case now == space && before >= letter:
		tenths = tenthsAfter(before, 26)
	case now == space:
		tenths = 0
	}
	inWord := now >= letter || now == upper
	if before == space && !inWord { // the space is a token of its own
		tenths += whole
	}
	step := uint32(tenths)
	if !inWord {
		step |= 1 << gapShift
	}
	if (before == gap || before == space) && (inWord || now == word) {
		step |= 1 << wordShift
	}
	return step
}

func tenthsAfter(before class, column int) int {
	if price := after[before-letter][column]; price != 'X' {
		return int(price - '0')
	}
	return whole
}
