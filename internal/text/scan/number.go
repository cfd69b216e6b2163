package scan

// validLiteral reports whether a value that is no string, object or array is JSON: true, false, null or a number. +5,
// 007, .5 and 5. are none: parsers differ in what they take such a number for.
func validLiteral(value []byte) bool {
	switch string(value) {
	case "true", "false", "null":
		return true
	}
	at := 0
	if value[at] == '-' {
		at++
	}
	whole := digits(value, at)
	if whole == at || value[at] == '0' && whole > at+1 {
		return false
	}
	if at = whole; at < len(value) && value[at] == '.' {
		fraction := digits(value, at+1)
		if fraction == at+1 {
			return false
		}
		at = fraction
	}
	if at < len(value) && (value[at] == 'e' || value[at] == 'E') {
		if at++; at < len(value) && (value[at] == '+' || value[at] == '-') {
			at++
		}
		exponent := digits(value, at)
		if exponent == at {
			return false
		}
		at = exponent
	}
	return at == len(value)
}

// digits returns the offset of the first byte from at on that is no digit.
func digits(value []byte, at int) int {
	for at < len(value) && '0' <= value[at] && value[at] <= '9' {
		at++
	}
	return at
}
