package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// The limits of a head that is served here. Longer ones are for the fallback server.
const (
	maxRequestHead = 4 << 10 // bytes
	maxLines       = 48
)

// method is the only method that is served here.
const method = "POST "

// A line is a header field, as received and as parsed.
type line struct {
	raw         []byte
	name, value string
}

// A requestHead is the parsed head of a request. It is used again for the next request if that has the same fields.
type requestHead struct {
	lines  int // that it was made of
	header http.Header
	host   string
	length int64 // Content-Length
	close  bool  // Connection: close
}

// unsupportedFields ask for something that only the fallback server does.
var unsupportedFields = map[string]bool{
	"Transfer-Encoding": true, "Expect": true, "Upgrade": true, "Trailer": true, "Te": true, "Pragma": true,
	"Proxy-Connection": true, "Keep-Alive": true, "Http2-Settings": true,
}

// mayBecomePlain reports whether what has arrived can become a request that is served here. If it cannot, the fallback
// server gets the connection at once, so that a refusal does not wait for the end of the head.
func (sc *serverConn) mayBecomePlain(begun []byte) bool {
	n := min(len(begun), len(method))
	if string(begun[:n]) != method[:n] {
		return false
	}
	var hosts, lengths int
	for first := true; ; first = false {
		raw, rest, whole := bytes.Cut(begun, []byte("\n"))
		if !whole {
			return true
		}
		raw, plain := bytes.CutSuffix(raw, []byte("\r"))
		if first {
			plain = plain && sc.parseRequestLine(raw) != nil
		} else if plain {
			var name string
			name, _, plain = parseField(raw)
			switch name {
			case "Host":
				hosts++
			case "Content-Length":
				lengths++
			}
		}
		if !plain || hosts > 1 || lengths > 1 {
			return false
		}
		begun = rest
	}
}

// parseRequestLine returns the URL of the target, or nil for a request that is not served here.
func (sc *serverConn) parseRequestLine(first []byte) *url.URL {
	path, found := bytes.CutPrefix(first, []byte(method))
	path, version := bytes.CutSuffix(path, []byte(" HTTP/1.1"))
	if !found || !version {
		return nil
	}
	return sc.server.urls[string(path)]
}

// repeatHead prepares the head for a request whose head equals the previous one byte for byte.
func (sc *serverConn) repeatHead() bool {
	sc.changed = sc.changed[:0]
	return sc.buildHead(sc.head.lines, true)
}

// parseHead parses a head without its empty line. It returns false for one that is not served here. Lines that equal
// those of the previous head are not parsed again.
func (sc *serverConn) parseHead(head []byte) (target *url.URL, ok bool) {
	first, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if target = sc.parseRequestLine(first); target == nil {
		return nil, false
	}
	n, sameNames := 0, true
	sc.changed = sc.changed[:0]
	for ; len(rest) > 0; n++ {
		var raw []byte
		if raw, rest, ok = bytes.Cut(rest, []byte("\r\n")); !ok {
			return nil, false
		}
		if n < len(sc.lines) && bytes.Equal(sc.lines[n].raw, raw) {
			continue
		}
		name, value, ok := parseField(raw)
		if !ok {
			return nil, false
		}
		if n == len(sc.lines) {
			sc.lines = append(sc.lines, line{})
		}
		sameNames = sameNames && sc.lines[n].name == name && name != "Host" && name != "Connection"
		if sameNames {
			sc.changed = append(sc.changed, n)
		}
		sc.lines[n] = line{append(sc.lines[n].raw[:0], raw...), name, value}
	}
	return target, sc.buildHead(n, sameNames)
}

// buildHead makes the requestHead from the first n lines. With sameNames the lines differ from the previous head's in
// the values of sc.changed alone, and the header is reused if the handler has left it as it was.
func (sc *serverConn) buildHead(n int, sameNames bool) bool {
	if n > maxLines {
		return false
	}
	h := &sc.head
	if sameNames && n == h.lines && n > 0 && sc.updateHeader(n) {
		return h.parseLength(h.header["Content-Length"][0])
	}
	*h = requestHead{lines: n, header: make(http.Header, n), length: -1}
	values := make([]string, n) // one allocation for all fields; the handler may change them, the lines stay
	for i, l := range sc.lines[:n] {
		if _, repeated := h.header[l.name]; repeated || l.name == "Host" && h.host != "" {
			return false
		}
		switch l.name {
		case "Host":
			h.host = l.value
			continue
		case "Content-Length":
			if !h.parseLength(l.value) {
				return false
			}
		case "Connection":
			switch l.value {
			case "close":
				h.close = true
			case "keep-alive":
			default:
				return false
			}
		}
		values[i] = l.value
		h.header[l.name] = values[i : i+1 : i+1]
	}
	return h.length >= 0 && h.host != ""
}

// updateHeader writes the changed values to the previous header, and reports whether that now equals the first n lines.
// It does not if the handler has changed it.
func (sc *serverConn) updateHeader(n int) bool {
	h := &sc.head
	for _, i := range sc.changed {
		h.header[sc.lines[i].name] = []string{sc.lines[i].value}
	}
	for i := range n {
		l := &sc.lines[i]
		if l.name == "Host" {
			continue
		}
		if values := h.header[l.name]; len(values) != 1 || values[0] != l.value {
			return false
		}
	}
	return h.length >= 0 && len(h.header) == n-1 // all lines but Host
}

func (h *requestHead) parseLength(value string) (ok bool) {
	h.length, ok = parseLength(value)
	return ok
}

// parseLength parses a Content-Length: decimal digits and nothing else.
func parseLength(value string) (n int64, ok bool) {
	length, err := strconv.ParseUint(value, 10, 62)
	return int64(length), err == nil
}

// parseField parses a line of a head. It returns false for one that is not served here: an unsupported field, or
// anything but a token and printable ASCII.
func parseField(raw []byte) (name, value string, ok bool) {
	key, rest, ok := bytes.Cut(raw, []byte(":"))
	if !ok || !isToken(key) {
		return "", "", false
	}
	for _, c := range rest {
		if c < ' ' || c > '~' {
			return "", "", false
		}
	}
	name = textproto.CanonicalMIMEHeaderKey(string(key))
	value = string(bytes.Trim(rest, " "))
	if unsupportedFields[name] || name == "Host" && !validHost(value) {
		return "", "", false
	}
	return name, value, true
}

// validHost reports whether a host consists of letters, digits and the punctuation of names, addresses and ports.
func validHost(host string) bool {
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._:[]", c) >= 0:
		default:
			return false
		}
	}
	return host != ""
}
