package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// Attacks on other tenants: floods of connections without a key, and uploads that stall. Each attack runs while a
// caller that pays sends requests, each on a new connection.

// lanes are the flags with which each of the two HTTP servers answers inference.
var lanes = map[string]string{"fast lane": "--fast-lane", "net/http": "--no-fast-lane"}

// service is how a paying caller fared during an attack.
type service struct {
	served  int
	refused map[string]int // by what it got instead of an answer
	longest time.Duration  // without an answer
}

func (f service) String() string {
	return fmt.Sprintf("%d requests served, refused %v, %.1f s at most without an answer", f.served, f.refused, f.longest.Seconds())
}

// watch sends the requests of a paying caller until ctx ends.
func (s *process) watch(ctx context.Context, body string) service {
	f := service{refused: map[string]int{}}
	key, last := s.key(), time.Now()
	for ctx.Err() == nil {
		c := s.callerWith(key)
		c.client.Timeout = 5 * time.Second
		a, err := c.post(context.Background(), "/v1/chat/completions", body, nil)
		c.client.CloseIdleConnections()
		switch {
		case err != nil:
			f.refused["no answer"]++
		case a.status != http.StatusOK:
			f.refused[strconv.Itoa(a.status)]++
		default:
			f.served++
			f.longest, last = max(f.longest, time.Since(last)), time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.longest = max(f.longest, time.Since(last))
	return f
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak returns the most memory that a process has had resident.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kilobytes, _ := strconv.ParseInt(string(highWater.FindSubmatch(text)[1]), 10, 64)
	return kilobytes << 10
}

// openFiles raises the limit of open files to its maximum and returns it. Servers inherit it.
func openFiles(t *testing.T) int {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	return int(min(l.Max, 1<<20))
}

// A flood is many connections of one attacker.
type flood struct {
	host, text string
	persistent bool          // a connection that the server closes is opened again
	dialing    chan struct{} // bounds those that are being opened
	opened     atomic.Int64
	group      sync.WaitGroup
}

// start opens connections, sends the text on each, and keeps them open until ctx ends.
func (f *flood) start(ctx context.Context, connections int) {
	f.dialing = make(chan struct{}, 64)
	for range connections {
		f.group.Go(func() {
			for held := false; ctx.Err() == nil && (f.persistent || !held); held = f.hold(ctx) {
			}
			<-ctx.Done()
		})
	}
}

// hold opens a connection and waits until the server closes it. It returns false if none could be opened.
func (f *flood) hold(ctx context.Context) bool {
	f.dialing <- struct{}{}
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", f.host)
	if err == nil {
		_, err = io.WriteString(conn, f.text)
	}
	<-f.dialing
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return false
	}
	f.opened.Add(1)
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
	return true
}

// 10,100 connections without a key, as many as the server holds and more: callers with a key are served meanwhile.
func TestDrillAFloodOfConnectionsWithoutAKeyLocksNobodyOut(t *testing.T) {
	body := chat("sim/chat", "a short question", `"max_tokens":8`)
	long := time.Duration(drills(2, 30)) * time.Second
	most, flags := drills(100, 10_000), []string{}
	if files := openFiles(t); files < most+2048 { // each process has all of them, and some more
		most = files - 2048
		t.Logf("scaled down to %d connections: a process may open %d files", most, files)
	}
	if most != 10_000 {
		flags = append(flags, "--limits-connections", strconv.Itoa(most))
	}
	post := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	for attack, text := range map[string]string{"one POST each": post, "half a head each": post[:60]} {
		for lane, flag := range lanes {
			t.Run(attack+", "+lane, func(t *testing.T) {
				s := newInstance(t, secret.Text{}).serve(t, append(flags, flag)...)
				ctx, cancel := context.WithTimeout(context.Background(), long)
				defer cancel()
				f := &flood{host: strings.TrimPrefix(s.address(), "http://"), text: text, persistent: attack != "one POST each"}
				f.start(ctx, most+100)
				got := s.watch(ctx, body)
				f.group.Wait()
				t.Logf("%d connections without a key, opened %d times in %s: %s; peak memory of the server %d MiB",
					most+100, f.opened.Load(), long, got, peak(t, s.Process.Pid)>>20)
				if got.served == 0 || measured() && got.longest > 5*time.Second {
					t.Error("a caller with a key was locked out")
				}
			})
		}
	}
}

// stall begins an upload of so many bytes and never sends the last one. It calls sent when all others were sent, and
// returns the status that the server ends it with, or 0.
func stall(ctx context.Context, host, key string, bytes int, sent func()) int {
	defer sent()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
	_, err = fmt.Fprintf(conn, head, key, bytes)
	piece := strings.Repeat(" ", 64<<10)
	for left := bytes - 1; left > 0 && err == nil; left -= len(piece) {
		_, err = io.WriteString(conn, piece[:min(left, len(piece))])
	}
	sent()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	return response.StatusCode
}

// keepStalling begins an upload again after the server has ended it, with fewer bytes when there was no room for more.
func keepStalling(ctx context.Context, host, key string, most, least int, sent func()) {
	for size := most; ctx.Err() == nil; {
		if stall(ctx, host, key, size, sent) == http.StatusTooManyRequests {
			size = max(size/2, least)
			time.Sleep(100 * time.Millisecond)
		} else {
			size = most
			time.Sleep(5 * time.Second)
		}
	}
}

// 33 uploads of 31 MiB and 26 small ones stall, all with one key, and are begun again when the server ends them. Other
// workspaces are served meanwhile, and the memory stays within what was configured.
func TestDrillStalledUploadsOfOneKeyStopNobodyElse(t *testing.T) {
	long, unit := time.Duration(drills(2, 30))*time.Second, drills(1<<15, 1<<20)
	flags := []string{"--limits-body", strconv.Itoa(32 * unit), "--limits-buffered-memory", strconv.Itoa(1024 * unit)}
	body := chat("sim/chat", strings.Repeat("a long question ", 5000), `"max_tokens":8`)
	for wallet, credit := range map[string]money.Nano{"an empty wallet": 0, "a cent": money.Dollar / 100} {
		for lane, flag := range lanes {
			t.Run(wallet+", "+lane, func(t *testing.T) {
				s := newInstance(t, secret.Text{}).serve(t, append(flags, flag)...)
				key, host := s.newWorkspace(t, "attacker", credit), strings.TrimPrefix(s.address(), "http://")
				ctx, cancel := context.WithTimeout(context.Background(), long)
				defer cancel()
				var group, large sync.WaitGroup
				for range 33 {
					large.Add(1)
					sent := sync.OnceFunc(large.Done)
					group.Go(func() { keepStalling(ctx, host, key, 31*unit, unit, sent) })
				}
				for range 26 { // they take what is left
					group.Go(func() {
						large.Wait()
						keepStalling(ctx, host, key, 2*unit, unit/64, func() {})
					})
				}
				got := s.watch(ctx, body)
				group.Wait()
				memory := peak(t, s.Process.Pid)
				t.Logf("stalled uploads with %s for %s: %s; peak memory of the server %d MiB", wallet, long, got, memory>>20)
				if got.served == 0 || measured() && got.longest > 5*time.Second {
					t.Error("another workspace was locked out")
				}
				if memory > 1700<<20 {
					t.Error("the memory does not follow limits.buffered_memory")
				}
			})
		}
	}
}

// Where the head of a request decides, the refusal does not wait for the body.
func TestARequestIsRefusedByItsHeadBeforeItsBodyArrives(t *testing.T) {
	t.Parallel()
	for lane, flag := range lanes {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			s := newInstance(t, secret.Text{}).serve(t, flag, "--limits-body", "1MiB")
			broke := s.newWorkspace(t, "broke", 0)
			var member struct {
				APIKey string `json:"api_key"`
			}
			s.mustAdmin(t, nil, "member", "add", "--workspace", "default", "--email", "m@example.test", "--role", "member", "--json")
			s.mustAdmin(t, &member, "key", "create", "--workspace", "default", "--email", "m@example.test", "--json")
			for name, c := range map[string]struct {
				path, key string
				length    int
				want      int
			}{
				"no key":                            {"/v1/chat/completions", "", 1000, 401},
				"an empty wallet":                   {"/v1/chat/completions", broke, 1000, 402},
				"a large body for an empty wallet":  {"/v1/embeddings", broke, 1 << 20, 402},
				"a member where an admin is needed": {"/v1/criteria", member.APIKey, 1000, 403},
				"a body over the limit":             {"/v1/chat/completions", s.key(), 1<<20 + 1, 413},
			} {
				conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				_ = conn.SetDeadline(time.Now().Add(limit))
				head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", c.path, c.length)
				if c.key != "" {
					head += "Authorization: Bearer " + c.key + "\r\n"
				}
				if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
					t.Fatal(err)
				}
				if r, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || r.StatusCode != c.want {
					t.Errorf("%s: %+v %v, not %d", name, r, err, c.want)
				}
			}
		})
	}
}

// One address uses up its keyless requests; another address, and a key at the same address, are served.
func TestKeylessRequestsOfOneAddressAreLimited(t *testing.T) {
	t.Parallel()
	for lane, flag := range lanes {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			s := newInstance(t, secret.Text{}).serve(t, flag, "--unlimited-addresses", "127.0.0.1/32", "--limits-address-keyless", "10")
			ask := func(from, key string) int {
				dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}, Timeout: limit}
				request, _ := http.NewRequest(http.MethodPost, s.address()+"/v1/chat/completions", strings.NewReader(chat("sim/chat", "x", `"max_tokens":8`)))
				request.Header.Set("Authorization", "Bearer "+key)
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				return response.StatusCode
			}
			if got := ask("127.0.0.2", s.key()); got != http.StatusOK {
				t.Errorf("with a key: %d", got)
			}
			eventually(t, "keyless requests are refused with 429", func() bool { return ask("127.0.0.2", "none") == http.StatusTooManyRequests })
			for range 20 {
				if got := ask("127.0.0.1", "none"); got != http.StatusUnauthorized {
					t.Errorf("from another address: %d", got)
				}
			}
		})
	}
}
