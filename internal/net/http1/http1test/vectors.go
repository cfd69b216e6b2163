// Package http1test has requests as bytes, well-formed and malformed, to test what a server makes of them.
package http1test

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed vectors.txt
var text string

// A Vector is what a caller sends over one connection, and what a server may make of it.
type Vector struct {
	Name    string
	Bytes   string
	Served  int  // how many requests are served
	Refused bool // after these the connection is refused and closed; otherwise it can be used for more
}

// A Caller says how the placeholders of the vectors are filled in.
type Caller struct {
	Target string // of all requests
	Fields string // further lines of every head, each with its CR LF
	Body   string // of the requests that are to be served
	Hidden string // body of the requests that a lenient reader could find in another's body
}

// Post returns a well-formed request with a body. lines are further lines of its head, each with its CR LF.
func (c Caller) Post(body string, lines ...string) string {
	return "POST " + c.Target + " HTTP/1.1\r\nHost: a.test\r\n" + c.Fields + strings.Join(lines, "") +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// Vectors returns all vectors of the file.
func (c Caller) Vectors() (all []Vector, err error) {
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(c.Body), c.Body)
	fill := strings.NewReplacer(
		"{target}", c.Target, "{fields}", c.Fields, "{body}", c.Body, "{n}", strconv.Itoa(len(c.Body)),
		"{x}", strconv.FormatInt(int64(len(c.Body)), 16), "{chunk}", chunk, "{chunked}", chunk+"0\r\n\r\n",
		"{start}", "POST "+c.Target+" HTTP/1.1\r\n",
		"{head}", "POST "+c.Target+" HTTP/1.1\r\nHost: a.test\r\n"+c.Fields,
		"{plain}", c.Post(c.Body), "{hidden}", c.Post(c.Hidden),
		"{hidden-n}", strconv.Itoa(len(c.Post(c.Hidden))),
		"{both-n}", strconv.Itoa(len(c.Body)+len(c.Post(c.Hidden))),
	)
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		v, err := parse(block, fill)
		if err != nil {
			return nil, err
		}
		if v.Name != "" {
			all = append(all, v)
		}
	}
	return all, nil
}

// parse reads one block of the file. A comment alone is a vector without a name.
func parse(block string, fill *strings.Replacer) (v Vector, err error) {
	var bytes strings.Builder
	for line := range strings.SplitSeq(block, "\n") {
		head, isHead := strings.CutPrefix(line, "[")
		switch {
		case strings.HasPrefix(line, "#"):
		case isHead:
			var ending string
			if _, err := fmt.Sscanf(head, "%s %d", &ending, &v.Served); err != nil || v.Name != "" {
				return v, fmt.Errorf("not a vector: %s", line)
			}
			_, v.Name, _ = strings.Cut(head, "] ")
			v.Refused = ending == "refused"
		default:
			part, err := strconv.Unquote(`"` + strings.ReplaceAll(line, `"`, `\"`) + `"`)
			if err != nil {
				return v, fmt.Errorf("%s: %q: %w", v.Name, line, err)
			}
			bytes.WriteString(fill.Replace(part))
		}
	}
	v.Bytes = bytes.String()
	return v, nil
}
