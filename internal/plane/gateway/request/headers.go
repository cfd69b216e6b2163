package request

import (
	"fmt"
	"net/http"
	"strings"

	"sovereign/internal/base/fault"
	"sovereign/internal/plane/edge"
)

// Bounds of the headers, in characters.
const (
	maxTag   = 64
	maxTrace = 128
)

// CheckHeaders refuses invalid X-Service headers, before any money is held. These headers are never sent to a provider.
func CheckHeaders(header http.Header) error {
	logged, cached := edge.FirstValue(header, "X-Service-Log"), edge.FirstValue(header, "X-Service-Cache")
	switch {
	case !printable(edge.FirstValue(header, "X-Service-Tag"), maxTag):
		return fault.Invalid(
			"X-Service-Tag", fmt.Sprintf("must be at most %d characters, without control characters", maxTag),
		)
	case !printable(edge.FirstValue(header, "X-Service-Trace-Id"), maxTrace):
		return fault.Invalid(
			"X-Service-Trace-Id", fmt.Sprintf("must be at most %d characters, without control characters", maxTrace),
		)
	case logged != "" && logged != "off":
		return fault.Invalid("X-Service-Log", "can only be off")
	case cached != "" && cached != "on" && cached != "off":
		return fault.Invalid("X-Service-Cache", "must be on or off")
	default:
		return nil
	}
}

func printable(text string, maxLength int) bool {
	return text == "" || len([]rune(text)) <= maxLength && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\uFFFD'
	})
}

// ReadAnnotations reads the headers that are for the log.
func ReadAnnotations(header http.Header) Annotations {
	return Annotations{
		Tag: edge.FirstValue(header, "X-Service-Tag"), Trace: edge.FirstValue(header, "X-Service-Trace-Id"),
		NoLog: edge.FirstValue(header, "X-Service-Log") == "off",
	}
}
