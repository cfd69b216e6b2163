package redact

// A class is a set of ASCII characters.
type class uint8

const (
	digit   class = iota
	hexLow        // 0-9 a-f
	hexAny        // 0-9 a-f A-F
	low           // 0-9 a-z
	up            // 0-9 A-Z
	alnum         // 0-9 a-z A-Z
	word          // alnum and _
	name          // word and -
	b64           // alnum, + and /
	loose         // name, . and =
	base32        // 2-7 A-Z
	bech32        // the characters of age keys, in upper case
	percent       // b64, % and =
	bearer        // the characters of a token by RFC 6750, and :
	value         // the characters of an assigned value
	visible       // the characters of a password
	armor         // the characters between BEGIN and END of a PEM block
	letter        // a-z A-Z
	tilde         // name, . and ~
	path          // name, + and /
	follow        // may follow the name of a secret
	before        // may precede a token with a short prefix
	classes
)

const (
	digits  = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	letters = lower + upper
)

// byLetter maps the letters used in shapes to classes.
var byLetter = map[byte]class{
	'd': digit, 'x': hexLow, 'X': hexAny, 'n': low, 'N': up, 'a': alnum, 'w': word, 't': name, 'b': b64, 'v': loose,
	'k': base32, 'c': bech32, 'p': percent, 'B': bearer, 'l': letter,
	'z': tilde, 'u': path, 'f': follow, 'q': before,
}

var classChars = [classes]string{
	digit:   digits,
	hexLow:  digits + "abcdef",
	hexAny:  digits + "abcdefABCDEF",
	low:     digits + lower,
	up:      digits + upper,
	alnum:   digits + letters,
	word:    digits + letters + "_",
	name:    digits + letters + "_-",
	b64:     digits + letters + "+/",
	loose:   digits + letters + "_-.=",
	base32:  "234567" + upper,
	bech32:  "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
	percent: digits + letters + "+/%=",
	bearer:  digits + letters + "-._~+/=:",
	value:   digits + letters + "_.=+/~%:@-",
	visible: digits + letters + "_.=+/~%:@-!#$^*&?|",
	armor:   digits + letters + "+/=-_:,.;()@ \t\r\n\\",
	letter:  letters,
	tilde:   digits + letters + "_-.~",
	path:    digits + letters + "_-+/",
	follow:  digits + letters + "_-. \t\n\r'\"`=:>|?,\\",
	before:  " \t\n\r'\"`=:>|,(",
}

// classBits has one bit for each class of a character.
var classBits = func() (of [256]uint32) {
	for c, all := range classChars {
		for i := range len(all) {
			of[all[i]] |= 1 << c
		}
	}
	return of
}()

func is(c byte, in class) bool { return classBits[c]>>in&1 != 0 }
