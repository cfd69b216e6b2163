package gateway

import (
	"strings"

	"sovereign/internal/text/redact"
)

// maskedTag stands for a tag that may be a credential.
const maskedTag = "[redacted]"

// chargedTag returns the tag that the charge of a request carries to the disk. The words around a credential, which
// show what it is, are not at hand here: so a tag with a long word of letters and digits is masked too.
func chargedTag(tag string) string {
	const longest = 15
	digits, letters := false, false
	length := 0
	for i := range len(tag) {
		c := tag[i] | 0x20
		switch {
		case c >= 'a' && c <= 'z':
			letters = true
		case c >= '0' && c <= '9':
			digits = true
		default:
			digits, letters, length = false, false, -1
		}
		if length++; length > longest && digits && letters {
			return maskedTag
		}
	}
	if strings.Contains(redact.String(tag), "[redacted]") {
		return maskedTag
	}
	return tag
}
