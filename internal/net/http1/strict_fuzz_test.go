package http1

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The strict reading of RFC 9112, written another way than requestChecker: by patterns over whole heads.
var (
	requestLinePattern = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+ ([\\x21-\\x22\\x24-\\x5b\\x5d-\\x7e]+) HTTP/1\\.([01])$")
	fieldPattern       = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[^\\x00-\\x08\\x0a-\\x1f\\x7f]*[^\\x00-\\x20\\x7f])?)[ \t]*$")
	chunkPattern       = regexp.MustCompile(`^([0-9a-fA-F]{1,15})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?$`)
	hostPattern        = regexp.MustCompile(`^[0-9A-Za-z._:\[\]-]+$`)
)

// readStrictly returns the bodies of the requests in wire, up to the first that is malformed or not whole.
func readStrictly(wire string) (bodies []string) {
	for {
		wire = strings.TrimPrefix(wire, "\r\n")
		head, rest, whole := strings.Cut(wire, "\r\n\r\n")
		if !whole {
			return bodies
		}
		length, chunked, ok := readHeadStrictly(head)
		if !ok {
			return bodies
		}
		body := ""
		if chunked {
			body, rest, ok = readChunksStrictly(rest)
		} else if ok = length <= len(rest); ok {
			body, rest = rest[:length], rest[length:]
		}
		if !ok {
			return bodies
		}
		bodies, wire = append(bodies, body), rest
	}
}

func readHeadStrictly(head string) (length int, chunked, ok bool) {
	lines := strings.Split(head, "\r\n")
	request := requestLinePattern.FindStringSubmatch(lines[0])
	if request == nil {
		return 0, false, false
	}
	fields := map[string][]string{}
	for _, line := range lines[1:] {
		field := fieldPattern.FindStringSubmatch(line)
		if field == nil {
			return 0, false, false
		}
		name := strings.ToLower(field[1])
		fields[name] = append(fields[name], field[2])
	}
	hosts, lengths, codings := fields["host"], fields["content-length"], fields["transfer-encoding"]
	old := request[2] == "0"
	switch {
	case len(hosts) > 1, len(hosts) == 0 && !old, len(hosts) == 1 && !hostPattern.MatchString(hosts[0]):
		return 0, false, false
	case len(lengths)+len(codings) > 1, len(codings) == 1 && (codings[0] != "chunked" || old):
		return 0, false, false
	case len(codings) == 1:
		return 0, true, true
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 62)
		return int(min(n, 1<<40)), false, err == nil
	}
	return 0, false, true
}

func readChunksStrictly(text string) (body, rest string, ok bool) {
	for {
		line, after, found := strings.Cut(text, "\r\n")
		size := chunkPattern.FindStringSubmatch(line)
		if !found || size == nil {
			return "", "", false
		}
		n, err := strconv.ParseInt(size[1], 16, 64)
		if err != nil {
			return "", "", false
		}
		if n == 0 {
			return body, trailersEnd(after), true
		}
		if int64(len(after)) < n+2 || after[n:n+2] != "\r\n" {
			return "", "", false
		}
		body, text = body+after[:n], after[n+2:]
	}
}

// trailersEnd returns what comes after a trailer section. What is wrong with that is not looked for: it comes after the
// body's end.
func trailersEnd(text string) string {
	if rest, none := strings.CutPrefix(text, "\r\n"); none {
		return rest
	}
	_, rest, _ := strings.Cut(text, "\r\n\r\n")
	return rest
}

// One request is one request: both lanes serve what the strict reading finds, in its order, and nothing else. They may
// serve less, since a request may end its connection.
func FuzzLanesReadStrictly(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.Bytes), []byte(nil))
		f.Add([]byte(v.Bytes), []byte{3, 40, 0, 0, 120})
	}
	for _, seed := range requestSeeds() {
		f.Add([]byte(seed), []byte{1, 60})
	}
	w := newServerPair(f)
	f.Fuzz(func(t *testing.T, wire, cuts []byte) {
		if len(wire) > 16<<10 {
			return
		}
		strict := readStrictly(string(wire))
		for name, lane := range map[string]*Handover{"net/http": w.netHTTP, "the fast lane": w.fast} {
			seen, _ := w.exchange(t, lane, wire, cuts)
			for i, request := range seen {
				whole := func(body string) bool { return strings.HasSuffix(request, fmt.Sprintf("\nbody %q <nil>\n", body)) }
				if !strings.HasSuffix(request, " <nil>\n") { // its body could not be read
					continue
				}
				if i >= len(strict) || !whole(strict[i]) {
					t.Fatalf("%q cut by %v: %s serves %q, and strictly there are %q", wire, cuts, name, slices.Clip(seen), strict)
				}
			}
		}
	})
}
