package segment

import "strings"

// mask replaces a value. It contains no word for the sketch.
const mask = "<*>"

// Template is a prompt with every value that a program may have put into it written as <*>: numbers, dates and times,
// ids, e-mail addresses and URLs. Values that only space or punctuation parts are written once, so that a date in words
// is as one in figures. What stands in quotes is left as it is: prompts quote labels and the names of fields, which
// tell them apart.
func Template(system string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(system); {
		if !alphanumeric(system[i]) {
			i++
			continue
		}
		end, varies := run(system, i)
		if varies {
			b.WriteString(system[done:i])
			b.WriteString(mask)
			done = end
		}
		i = end
	}
	if done == 0 {
		return system
	}
	b.WriteString(system[done:])
	return b.String()
}

// run returns the end of the tokens from i on that may form one value, at least the first token, and whether they do.
func run(s string, i int) (end int, varies bool) {
	for {
		last, kind := token(s, i)
		if kind == word {
			if end == 0 {
				end = last
			}
			return end, varies
		}
		end, varies = last, varies || kind == value
		for i = end; i < len(s) && strings.IndexByte(" \t,./:;-+()", s[i]) >= 0; {
			i++
		}
		if i == len(s) || !alphanumeric(s[i]) {
			return end, varies
		}
	}
}

// A kind classifies a token.
type kind int

const (
	word    kind = iota
	value        // varies from call to call
	dateish      // part of a value when it is next to one
)

// token returns the end of the token that begins at i: letters, digits, and the characters that join them.
func token(s string, i int) (end int, k kind) {
	end = i
	for end < len(s) {
		c := s[end]
		switch {
		case alphanumeric(c):
			if digit(c) {
				k = value
			}
		case end+1 == len(s) || !alphanumeric(s[end+1]):
			return look(s, i, end, k)
		case c == '@':
			k = value
		case strings.IndexByte("._-/+", c) >= 0:
		case (c == ':' || c == ',') && digit(s[end-1]) && digit(s[end+1]):
		default:
			return look(s, i, end, k)
		}
		end++
	}
	return look(s, i, end, k)
}

// look classifies the token from i to end by its characters and by what follows, and may extend it.
func look(s string, i, end int, k kind) (int, kind) {
	text := s[i:end]
	if strings.HasPrefix(s[end:], "://") || strings.HasPrefix(text, "www.") {
		if n := strings.IndexAny(s[end:], " \t\r\n\"'`<>()[]{}"); n >= 0 {
			end += n
		} else {
			end = len(s)
		}
		for strings.IndexByte(".,;:!?", s[end-1]) >= 0 {
			end--
		}
		return end, value
	}
	if k == word && len(text) <= len("wednesday") {
		k = dates[strings.ToLower(text)]
	}
	return end, k
}

// dates holds the words of dates. A day of the week is always a value; the others are also ordinary words or names.
var dates = func() map[string]kind {
	kinds := map[string]kind{}
	for _, day := range strings.Fields("monday tuesday wednesday thursday friday saturday sunday") {
		kinds[day], kinds[day[:3]] = value, dateish
	}
	for _, month := range strings.Fields("january february march april may june july august september october november december") {
		kinds[month], kinds[month[:3]] = dateish, dateish
	}
	for _, other := range strings.Fields("sept tues thur thurs am pm utc gmt cet cest est edt cst cdt pst pdt") {
		kinds[other] = dateish
	}
	return kinds
}()

func digit(c byte) bool { return '0' <= c && c <= '9' }

func alphanumeric(c byte) bool { return digit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }
