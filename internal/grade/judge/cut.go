package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A piece is a head line, which names what is quoted, and the defused text. Pieces of a response are cut last. Of media
// a judge is told only that they are there; their data distinguishes subjects.
type piece struct {
	head, text string
	judged     bool
	media      string
}

// maxPieces limits the lines that are not quoted. Of a subject with more, the middle is left out.
const maxPieces = 2_000

// thin leaves out the middle of more than maxPieces pieces.
func thin(all []piece) []piece {
	if len(all) <= maxPieces {
		return all
	}
	from, to := maxPieces/2, len(all)-maxPieces/2
	left := 0
	for _, p := range all[from:to] {
		left += utf8.RuneCountInString(p.text)
	}
	gap := piece{head: fmt.Sprintf("(%d pieces with %d characters left out)", to-from, left)}
	return slices.Concat(all[:from], []piece{gap}, all[to:])
}

// fit cuts the middle out of the longest pieces until what is quoted fits the limit. Responses are cut only when
// everything else is down to an eighth of the limit, so that a judge still sees what was asked.
func fit(all []piece, limit int) []piece {
	var rest, judged []int
	total := [2]int{}
	for _, p := range all {
		size := width(p.text)
		if p.judged {
			judged = append(judged, size)
			total[1] += size
		} else {
			rest = append(rest, size)
			total[0] += size
		}
	}
	if total[0]+total[1] <= limit {
		return all
	}
	restLimit := min(total[0], max(limit-total[1], limit/8))
	most := map[bool]int{false: level(rest, restLimit), true: level(judged, limit-restLimit)}
	fitted := make([]piece, 0, len(all))
	for _, p := range all {
		fitted = append(fitted, p.cut(most[p.judged])...)
	}
	return fitted
}

// level returns the size to which the larger ones must be cut so that together they fit the limit.
func level(sizes []int, limit int) int {
	slices.Sort(sizes)
	for i, size := range sizes {
		if each := limit / (len(sizes) - i); size > each {
			return each
		}
		limit -= size
	}
	return math.MaxInt
}

// width returns how many characters a text has when it is quoted.
func width(text string) int {
	return utf8.RuneCountInString(text) + len(bar)*strings.Count(text, "\n")
}

// cut takes the middle out of a piece that is wider than limit.
func (p piece) cut(limit int) []piece {
	if width(p.text) <= limit {
		return []piece{p}
	}
	start := 0
	for kept := limit - limit/2; start < len(p.text); {
		r, size := utf8.DecodeRuneInString(p.text[start:])
		if kept -= cost(r); kept < 0 {
			break
		}
		start += size
	}
	end := len(p.text)
	for kept := limit / 2; end > start; {
		r, size := utf8.DecodeLastRuneInString(p.text[:end])
		if kept -= cost(r); kept < 0 {
			break
		}
		end -= size
	}
	gap := fmt.Sprintf("(%d characters left out)", utf8.RuneCountInString(p.text[start:end]))
	first, last := p, p
	first.text, last.head, last.text = p.text[:start], gap, p.text[end:]
	return []piece{first, last}
}

// cost is the width of one character.
func cost(r rune) int {
	if r == '\n' {
		return 1 + len(bar)
	}
	return 1
}
