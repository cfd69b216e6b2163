package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/net/socket"
)

// A visit is one connection of a server's, with its requests one after the other.
type serverConn struct {
	server *Server
	conn   net.Conn
	base   context.Context //nolint:containedctx // the connection's, which its requests' stand on
	remote string
	socket *socket.Socket // nil where there is none

	buffer     []byte
	start, end int       // what is unread stands between them
	before     []byte    // the head before, since clients repeat themselves, with its end
	target     *url.URL  // of it
	lines      []line    // of it
	changed    []int     // those that say something else than before, where the head is otherwise the same
	envelope   envelope  // made of them
	waiting    time.Time // since when the deadline for the next request holds
	request    *handlerRequest
	reply      responseWriter
	state      atomic.Int32

	// What follows is shared with the watch for a caller who leaves.
	mutex   sync.Mutex
	timer   *time.Timer
	set     bool            // the timer is, and rings
	watched *handlerRequest // that runs, once it was read
	turn    int             // of those that were, one after the other
	seen    int             // the turn that ran when the timer was last set
	looking chan struct{}   // closed when the watch has ended; nil when there is none
	early   []byte          // what the watch has read: of the next request
}

// A line of a head, as it came and as it is understood.
type line struct {
	raw         []byte
	name, value string
}

// headRoom is how long a head may be to be taken here.
const headRoom = 4 << 10

// watchAfter is for how long a request runs at least before its caller is watched for leaving, and at most for twice as long: most are
// over before.
const backgroundReadDelay = 100 * time.Millisecond

func newServerConn(s *Server, conn net.Conn) *serverConn {
	v := &serverConn{server: s, conn: conn, base: context.Background(), remote: conn.RemoteAddr().String(), socket: socket.Of(conn), buffer: make([]byte, headRoom)}
	if s.ConnContext != nil {
		v.base = s.ConnContext(conn)
	}
	v.reply.visit = v
	return v
}

// run serves requests until the connection ends, or is handed on.
func (v *serverConn) run() {
	v.server.track(v)
	for v.setIdle() {
		target, verdict := v.head()
		if verdict == ended {
			break
		}
		if verdict == handsOn {
			v.hand()
			return
		}
		if !v.setActive() || !v.serve(target) {
			break
		}
	}
	if v.request != nil && v.request.body.left > 0 {
		v.linger()
	}
	v.server.forget(v)
	_ = v.conn.Close()
}

// hand gives the connection to who takes the others.
func (v *serverConn) hand() {
	v.server.forget(v)
	_ = v.conn.SetReadDeadline(time.Time{})
	v.server.Fallback(&replayConn{Conn: v.conn, pending: bytes.Clone(v.buffer[v.start:v.end])})
}

// A verdict is what becomes of a connection.
type verdict int

const (
	taken   verdict = iota
	handsOn         // it is for another server
	ended
)

// head reads the next request up to its body.
func (v *serverConn) head() (target *url.URL, is verdict) {
	v.start, v.end = 0, copy(v.buffer, v.buffer[v.start:v.end])
	if !v.waiting.IsZero() && !v.next() {
		return nil, ended
	}
	hurried := false
	for searched := 0; ; {
		unread := v.buffer[:v.end]
		if len(v.before) > 0 && bytes.HasPrefix(unread, v.before) && v.again() {
			v.start = len(v.before)
			return v.target, taken
		}
		if end := bytes.Index(unread[searched:], []byte("\r\n\r\n")); end >= 0 {
			head := unread[:searched+end+2]
			target, ok := v.understand(head)
			if !ok {
				return nil, handsOn
			}
			v.start = len(head) + len("\r\n")
			v.before, v.target = append(v.before[:0], unread[:v.start]...), target
			return target, taken
		}
		if v.end > 0 && !v.plausible(unread) || v.end == len(v.buffer) {
			return nil, handsOn
		}
		searched = max(0, v.end-3)
		if !hurried {
			hurried, v.waiting = true, unknown
			_ = v.conn.SetReadDeadline(time.Now().Add(v.server.HeaderTimeout))
		}
		n, err := v.read(v.buffer[v.end:])
		if v.end += n; n == 0 && err != nil {
			if v.end > 0 && errors.Is(err, io.EOF) {
				return nil, handsOn // who takes it knows what to say to half a request
			}
			return nil, ended
		}
	}
}

// next waits for another request to begin, and skips the line ends that some callers send behind a body. That a deadline was set a
// moment ago is good enough.
func (v *serverConn) next() bool {
	const few = 4 // bytes, which every request has
	for v.end < few {
		if now := time.Now(); now.Sub(v.waiting) > time.Second {
			v.waiting = now
			_ = v.conn.SetReadDeadline(now.Add(v.server.IdleTimeout))
		}
		n, err := v.read(v.buffer[v.end:])
		if v.end += n; n == 0 && err != nil {
			return false
		}
	}
	if rest := bytes.TrimLeft(v.buffer[:few], "\r\n"); len(rest) < few {
		v.end = copy(v.buffer, v.buffer[few-len(rest):v.end])
	}
	return true
}

func (v *serverConn) read(p []byte) (int, error) {
	if v.socket == nil {
		return v.conn.Read(p)
	}
	return v.socket.Read(p)
}

// unknown says that the deadline is none for waiting.
var unknown = time.Unix(1, 0)

// plausible reports whether what has come can become a request that is taken here. Nothing that would be refused waits for its end.
func (v *serverConn) plausible(begun []byte) bool {
	n := min(len(begun), len(method))
	if string(begun[:n]) != method[:n] {
		return false
	}
	for first := true; ; first = false {
		raw, rest, whole := bytes.Cut(begun, []byte("\n"))
		if !whole {
			return true
		}
		raw, plain := bytes.CutSuffix(raw, []byte("\r"))
		if first {
			plain = plain && v.leads(raw) != nil
		} else if plain {
			_, _, plain = plainLine(raw)
		}
		if !plain {
			return false
		}
		begun = rest
	}
}

const method = "POST "

// leads reads the first line of a head. It is nil for one that is not taken here.
func (v *serverConn) leads(first []byte) *url.URL {
	path, found := bytes.CutPrefix(first, []byte(method))
	path, version := bytes.CutSuffix(path, []byte(" HTTP/1.1"))
	if !found || !version {
		return nil
	}
	return v.server.urls[string(path)]
}

// again understands the head before once more, which is there again byte for byte.
func (v *serverConn) again() bool {
	v.changed = v.changed[:0]
	return v.collect(v.envelope.lines, true)
}

// understand reads a head. It is false for everything that is not plain.
func (v *serverConn) understand(head []byte) (target *url.URL, ok bool) {
	first, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if target = v.leads(first); target == nil {
		return nil, false
	}
	n, repeated := 0, true
	v.changed = v.changed[:0]
	for ; len(rest) > 0; n++ {
		var raw []byte
		if raw, rest, ok = bytes.Cut(rest, []byte("\r\n")); !ok {
			return nil, false
		}
		if n < len(v.lines) && bytes.Equal(v.lines[n].raw, raw) {
			continue
		}
		name, value, ok := plainLine(raw)
		if !ok {
			return nil, false
		}
		if n == len(v.lines) {
			v.lines = append(v.lines, line{})
		}
		if repeated = repeated && v.lines[n].name == name && name != "Host" && name != "Connection"; repeated {
			v.changed = append(v.changed, n)
		}
		v.lines[n] = line{append(v.lines[n].raw[:0], raw...), name, value}
	}
	return target, v.collect(n, repeated)
}

// maxLines bounds the lines of a head that is taken here: each is compared with all before it.
const maxLines = 48

// An envelope is what the lines of a head say together. Callers repeat themselves, and then so does it.
type envelope struct {
	lines  int // that it was made of
	header http.Header
	host   string
	length int64
	last   bool // the caller wants no other
}

// collect makes an envelope of the first n lines. When they repeat those before, but for what some of them say, so does it.
func (v *serverConn) collect(n int, repeated bool) bool {
	if n > maxLines {
		return false
	}
	e := &v.envelope
	if repeated && n == e.lines && n > 0 && v.renewed(n) {
		return e.measure(e.header["Content-Length"][0])
	}
	*e = envelope{lines: n, header: make(http.Header, n), length: -1}
	values := make([]string, n) // which are the handler's, while the lines stay
	for i, l := range v.lines[:n] {
		if _, twice := e.header[l.name]; twice || l.name == "Host" && e.host != "" {
			return false
		}
		switch l.name {
		case "Host":
			e.host = l.value
			continue
		case "Content-Length":
			if !e.measure(l.value) {
				return false
			}
		case "Connection":
			switch l.value {
			case "close":
				e.last = true
			case "keep-alive":
			default:
				return false
			}
		}
		values[i] = l.value
		e.header[l.name] = values[i : i+1 : i+1]
	}
	return e.length >= 0 && e.host != ""
}

// renewed puts what has changed into the header, and reports whether that is then what the first n lines say: it was a handler's.
func (v *serverConn) renewed(n int) bool {
	e := &v.envelope
	for _, i := range v.changed {
		e.header[v.lines[i].name] = []string{v.lines[i].value}
	}
	for i := range n {
		l := &v.lines[i]
		if l.name == "Host" {
			continue
		}
		if values := e.header[l.name]; len(values) != 1 || values[0] != l.value {
			return false
		}
	}
	return e.length >= 0 && len(e.header) == n-1 // all lines but the host's
}

// measure reads how long the body is.
func (e *envelope) measure(value string) bool {
	n, err := strconv.ParseUint(value, 10, 62)
	e.length = int64(n)
	return err == nil
}

// special are the names that ask for what is not done here.
var unsupportedFields = map[string]bool{
	"Transfer-Encoding": true, "Expect": true, "Upgrade": true, "Trailer": true, "Te": true, "Pragma": true,
	"Proxy-Connection": true, "Keep-Alive": true, "Http2-Settings": true,
}

// plainLine reads a line of a head. It is false for everything that is not plain.
func plainLine(raw []byte) (name, value string, ok bool) {
	key, rest, ok := bytes.Cut(raw, []byte(":"))
	if !ok || !token(key) {
		return "", "", false
	}
	for _, c := range rest {
		if c < ' ' || c > '~' {
			return "", "", false
		}
	}
	name = textproto.CanonicalMIMEHeaderKey(string(key))
	value = string(bytes.Trim(rest, " "))
	if unsupportedFields[name] || name == "Host" && !plainHost(value) {
		return "", "", false
	}
	return name, value, true
}

func plainHost(host string) bool {
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._:[]", c) >= 0:
		default:
			return false
		}
	}
	return host != ""
}
