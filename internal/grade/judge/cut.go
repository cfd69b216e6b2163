package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// mostPieces bounds the lines that are not quoted. Of a subject with more of them the middle is left out.
const mostPieces = 2_000

func thin(all []piece) []piece {
	if len(all) <= mostPieces {
		return all
	}
	from, to := mostPieces/2, len(all)-mostPieces/2
	left := 0
	for _, p := range all[from:to] {
		left += utf8.RuneCountInString(p.text)
	}
	gap := piece{head: fmt.Sprintf("(%d pieces with %d characters left out)", to-from, left)}
	return slices.Concat(all[:from], []piece{gap}, all[to:])
}

// fit cuts the middle out of the longest pieces until what is quoted fits into room. Responses are cut only when the rest
// is down to an eighth of it, so that a judge still sees what was asked.
func fit(all []piece, room int) []piece {
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
	if total[0]+total[1] <= room {
		return all
	}
	forRest := min(total[0], max(room-total[1], room/8))
	most := map[bool]int{false: level(rest, forRest), true: level(judged, room-forRest)}
	fitted := make([]piece, 0, len(all))
	for _, p := range all {
		fitted = append(fitted, p.cut(most[p.judged])...)
	}
	return fitted
}

// level is the most that each of some sizes may keep so that together they are within room.
func level(sizes []int, room int) int {
	slices.Sort(sizes)
	for i, size := range sizes {
		if each := room / (len(sizes) - i); size > each {
			return each
		}
		room -= size
	}
	return math.MaxInt
}

// width is how many characters a text is when it is quoted.
func width(text string) int {
	return utf8.RuneCountInString(text) + len(bar)*strings.Count(text, "\n")
}

// cut is p without its middle where it is wider than most.
func (p piece) cut(most int) []piece {
	if width(p.text) <= most {
		return []piece{p}
	}
	start := 0
	for kept := most - most/2; start < len(p.text); {
		r, size := utf8.DecodeRuneInString(p.text[start:])
		if kept -= cost(r); kept < 0 {
			break
		}
		start += size
	}
	end := len(p.text)
	for kept := most / 2; end > start; {
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
