package http1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sovereign/internal/life"
)

// A visit is one connection of a server's, with its requests one after the other.
type visit struct {
	server *Server
	conn   net.Conn
	base   context.Context //nolint:containedctx // the connection's, which its requests' stand on
	remote string
	socket syscall.RawConn // nil where long bodies are not waited for

	buffer   []byte
	from, to int       // what is unread stands between them
	lines    []line    // of the head before, since clients repeat themselves
	waiting  time.Time // since when the deadline for the next request holds
	request  *request
	reply    reply

	// What follows is shared with the watch for a caller who leaves.
	mutex   sync.Mutex
	timer   *time.Timer
	watched *request      // that runs, once it was read
	looking chan struct{} // closed when the watch has ended; nil when there is none
	early   []byte        // what the watch has read: of the next request
}

// A line of a head, as it came and as it is understood.
type line struct {
	raw         []byte
	name, value string
}

// headRoom is how long a head may be to be taken here.
const headRoom = 4 << 10

// watchAfter is for how long a request runs before its caller is watched for leaving: most are over before.
const watchAfter = 10 * time.Millisecond

func newVisit(s *Server, conn net.Conn) *visit {
	v := &visit{server: s, conn: conn, base: context.Background(), remote: conn.RemoteAddr().String(), socket: socketOf(conn), buffer: make([]byte, headRoom)}
	if s.Context != nil {
		v.base = s.Context(conn)
	}
	v.reply.visit = v
	return v
}

// run serves requests until the connection ends, or is handed on.
func (v *visit) run() {
	for v.server.keep(v, true) {
		target, length, verdict := v.head()
		if verdict == ended {
			break
		}
		if verdict == handsOn {
			v.hand()
			return
		}
		if !v.server.keep(v, false) || !v.serve(target, length) {
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
func (v *visit) hand() {
	v.server.forget(v)
	_ = v.conn.SetReadDeadline(time.Time{})
	v.server.Other(&handed{Conn: v.conn, read: bytes.Clone(v.buffer[v.from:v.to])})
}

// A verdict is what becomes of a connection.
type verdict int

const (
	taken   verdict = iota
	handsOn         // it is for another server
	ended
)

// head reads the next request up to its body.
func (v *visit) head() (target *url.URL, length int64, is verdict) {
	v.from, v.to = 0, copy(v.buffer, v.buffer[v.from:v.to])
	if !v.waiting.IsZero() && !v.next() {
		return nil, 0, ended
	}
	hurried := false
	for searched := 0; ; {
		unread := v.buffer[:v.to]
		if end := bytes.Index(unread[searched:], []byte("\r\n\r\n")); end >= 0 {
			head := unread[:searched+end+2]
			if target, length, ok := v.understand(head); ok {
				v.from = len(head) + 2
				return target, length, taken
			}
			return nil, 0, handsOn
		}
		if v.to > 0 && !v.plausible(unread) || v.to == len(v.buffer) {
			return nil, 0, handsOn
		}
		searched = max(0, v.to-3)
		if !hurried {
			hurried, v.waiting = true, unknown
			_ = v.conn.SetReadDeadline(time.Now().Add(v.server.HeaderTimeout))
		}
		n, err := v.conn.Read(v.buffer[v.to:])
		if v.to += n; n == 0 && err != nil {
			if v.to > 0 && errors.Is(err, io.EOF) {
				return nil, 0, handsOn // who takes it knows what to say to half a request
			}
			return nil, 0, ended
		}
	}
}

// next waits for another request to begin, and skips the line ends that some callers send behind a body. That a deadline was set a
// moment ago is good enough.
func (v *visit) next() bool {
	const few = 4 // bytes, which every request has
	for v.to < few {
		if now := time.Now(); now.Sub(v.waiting) > time.Second {
			v.waiting = now
			_ = v.conn.SetReadDeadline(now.Add(v.server.IdleTimeout))
		}
		n, err := v.conn.Read(v.buffer[v.to:])
		if v.to += n; n == 0 && err != nil {
			return false
		}
	}
	if rest := bytes.TrimLeft(v.buffer[:few], "\r\n"); len(rest) < few {
		v.to = copy(v.buffer, v.buffer[few-len(rest):v.to])
	}
	return true
}

// unknown says that the deadline is none for waiting.
var unknown = time.Unix(1, 0)

// plausible reports whether what has come can become a request that is taken here. Nothing that would be refused waits for its end.
func (v *visit) plausible(begun []byte) bool {
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
			plain = plain && v.target(raw) != nil
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

// target reads the first line of a head. It is nil for one that is not taken here.
func (v *visit) target(first []byte) *url.URL {
	path, found := bytes.CutPrefix(first, []byte(method))
	path, version := bytes.CutSuffix(path, []byte(" HTTP/1.1"))
	if !found || !version {
		return nil
	}
	return v.server.urls[string(path)]
}

// understand reads a head. It is false for everything that is not plain.
func (v *visit) understand(head []byte) (target *url.URL, length int64, ok bool) {
	first, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if target = v.target(first); target == nil {
		return nil, 0, false
	}
	n := 0
	for ; len(rest) > 0; n++ {
		var raw []byte
		if raw, rest, ok = bytes.Cut(rest, []byte("\r\n")); !ok {
			return nil, 0, false
		}
		if n < len(v.lines) && bytes.Equal(v.lines[n].raw, raw) {
			continue
		}
		name, value, ok := plainLine(raw)
		if !ok {
			return nil, 0, false
		}
		if n == len(v.lines) {
			v.lines = append(v.lines, line{})
		}
		v.lines[n] = line{append(v.lines[n].raw[:0], raw...), name, value}
	}
	return v.collect(target, n)
}

// maxLines bounds the lines of a head that is taken here: each is compared with all before it.
const maxLines = 48

// collect makes a header of the first n lines.
func (v *visit) collect(target *url.URL, n int) (*url.URL, int64, bool) {
	if n > maxLines {
		return nil, 0, false
	}
	v.request = &request{base: v.base, header: make(http.Header, n)}
	length, values := int64(-1), make([]string, n) // which are the handler's, while the lines stay
	for i, l := range v.lines[:n] {
		if _, twice := v.request.header[l.name]; twice || l.name == "Host" && v.request.host != "" {
			return nil, 0, false
		}
		switch l.name {
		case "Host":
			v.request.host = l.value
			continue
		case "Content-Length":
			n, err := strconv.ParseUint(l.value, 10, 62)
			if err != nil {
				return nil, 0, false
			}
			length = int64(n)
		case "Connection":
			switch l.value {
			case "close":
				v.request.last = true
			case "keep-alive":
			default:
				return nil, 0, false
			}
		}
		values[i] = l.value
		v.request.header[l.name] = values[i : i+1 : i+1]
	}
	return target, length, length >= 0 && v.request.host != ""
}

// special are the names that ask for what is not done here.
var special = map[string]bool{
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
	if special[name] || name == "Host" && !plainHost(value) {
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

// A request is one on its way, and the context that its handler has.
type request struct {
	life.Life
	base   context.Context //nolint:containedctx // what it stands on
	url    url.URL
	header http.Header
	body   body
	host   string
	last   bool // the caller wants no other
}

// Value implements context.Context.
func (r *request) Value(key any) any { return r.base.Value(key) }

// errLeft says that a caller has gone.
var errLeft = errors.New("the caller left")

// serve has one request answered. It is false when the connection is of no use any more.
func (v *visit) serve(target *url.URL, length int64) (again bool) {
	r := v.request
	r.url, r.body = *target, body{visit: v, left: length}
	v.reply.begin()
	v.reply.last = r.last
	in := (&http.Request{
		Method: http.MethodPost, URL: &r.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.header,
		Body: &r.body, ContentLength: length, Host: r.host, RequestURI: target.Path, RemoteAddr: v.remote, Close: r.last,
	}).WithContext(r)
	if length == 0 {
		in.Body = http.NoBody
		v.watch()
	}
	whole := v.handle(in)
	r.body.end()
	v.unwatch()
	stays := r.Why() == nil
	r.End(context.Canceled)
	again = whole && v.reply.finish() == nil && !v.reply.last
	v.reply.release()
	return again && stays && r.body.discard()
}

// handle calls the handler. It is false when that has panicked: then the answer breaks off.
func (v *visit) handle(in *http.Request) (whole bool) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler && v.server.Log != nil { //nolint:errorlint // what net/http compares, and how
			v.server.Log.Error("panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	v.server.Handler.ServeHTTP(&v.reply, in)
	return true
}

// watch begins, after a while, to watch for a caller who leaves. The request was read, and nothing has come after it.
func (v *visit) watch() {
	if v.from < v.to {
		return // a caller who is there already with the next
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.watched = v.request
	if v.timer == nil {
		v.timer = time.AfterFunc(watchAfter, v.look)
	} else {
		v.timer.Reset(watchAfter)
	}
}

// look waits for what a caller has no reason to send, or for its end.
func (v *visit) look() {
	v.mutex.Lock()
	r := v.watched
	if r == nil || v.looking != nil {
		v.mutex.Unlock()
		return
	}
	done := make(chan struct{})
	v.looking = done
	_ = v.conn.SetReadDeadline(time.Time{}) // before unwatch can set another
	v.mutex.Unlock()
	var one [1]byte
	n, err := v.conn.Read(one[:])
	v.mutex.Lock()
	v.early = append(v.early, one[:n]...)
	left := v.looking == done && n == 0 && err != nil // else it was called off
	v.mutex.Unlock()
	if left {
		r.End(errLeft)
	}
	close(done)
}

// unwatch ends the watch, and takes what it has read.
func (v *visit) unwatch() {
	v.mutex.Lock()
	if v.timer != nil {
		v.timer.Stop()
	}
	done := v.looking
	v.watched, v.looking = nil, nil
	if done != nil {
		_ = v.conn.SetReadDeadline(unknown) // long ago
	}
	v.mutex.Unlock()
	if done == nil {
		return
	}
	<-done
	v.waiting = unknown
	v.from, v.to = 0, copy(v.buffer, v.early)
	v.early = v.early[:0]
}

// A body is a request's.
type body struct {
	visit *visit
	left  int64
	timed bool // it has a deadline
	// awaits is how many bytes wake who waits for it; 0 as usual.
	awaits int

	mutex sync.Mutex
	over  bool // its handler has returned: what comes now is another's
}

// Read implements io.Reader. The end comes with the last bytes, and with it begins the watch.
func (b *body) Read(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.over {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.read(p)
	if errors.Is(err, io.EOF) && n > 0 {
		b.visit.watch()
	}
	return n, err
}

func (b *body) read(p []byte) (n int, err error) {
	v := b.visit
	if b.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), b.left)]
	if v.from < v.to {
		n = copy(p, v.buffer[v.from:v.to])
		v.from += n
	} else {
		if !b.timed {
			b.timed, v.waiting = true, unknown
			_ = v.conn.SetReadDeadline(time.Now().Add(v.server.BodyTimeout))
		}
		b.await(len(p))
		if n, err = v.conn.Read(p); n == 0 {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	if b.left -= int64(n); b.left == 0 {
		b.await(1)
		return n, io.EOF
	}
	return n, nil
}

// await has the next read wait for so many bytes, where that is much.
func (b *body) await(bytes int) {
	if bytes = min(bytes, mostAwaited); bytes < longBody {
		bytes = 1
	}
	if b.visit.socket != nil && bytes != max(b.awaits, 1) {
		b.awaits = bytes
		wakeAt(b.visit.socket, bytes)
	}
}

// end keeps a handler's goroutines from it.
func (b *body) end() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.over = true
}

// Close implements io.Closer.
func (b *body) Close() error { return nil }

// mostDiscarded is how much of a body that nobody wanted is read, so that its connection can be used again.
const mostDiscarded = 256 << 10

// discard reads what is left of a body.
func (b *body) discard() bool {
	var room []byte
	for b.left > 0 && b.left <= mostDiscarded {
		if room == nil {
			room = make([]byte, 4<<10)
		}
		if _, err := b.read(room); err != nil && !errors.Is(err, io.EOF) {
			return false
		}
	}
	return b.left == 0
}

// linger lets a caller who is still sending read its answer: to close at once would take that away from it.
func (v *visit) linger() {
	if half, ok := v.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	_ = v.conn.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.CopyN(io.Discard, v.conn, v.request.body.left-int64(v.to-v.from))
}
