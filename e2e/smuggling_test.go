package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"sovereign/internal/net/http1/http1test"
)

// vectorCaller fills in the vectors for a server. n tells the requests of one vector from those of others.
func vectorCaller(s *process, n int) http1test.Caller {
	return http1test.Caller{
		Target: "/v1/chat/completions",
		Fields: "Authorization: Bearer " + s.key() + "\r\nContent-Type: application/json\r\n",
		Body:   chat("mock/chat", fmt.Sprintf("open %d.", n)), Hidden: chat("mock/chat", fmt.Sprintf("hidden %d.", n)),
	}
}

func countVectors(t *testing.T, s *process) int {
	t.Helper()
	all, err := vectorCaller(s, 0).Vectors()
	if err != nil || len(all) < 150 {
		t.Fatalf("%d vectors, %v", len(all), err)
	}
	return len(all)
}

// sendRaw sends bytes as they are, ends its side, and returns what is answered until the connection is closed.
func sendRaw(t *testing.T, address, raw string, endsSide bool) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	_, _ = io.WriteString(conn, raw) // it fails when the server has closed already
	if tcp, ok := conn.(*net.TCPConn); ok && endsSide {
		_ = tcp.CloseWrite()
	}
	all, _ := io.ReadAll(conn)
	return string(all)
}

// reached counts the requests at the provider by their text.
func reached(t *testing.T, provider string) func(text string) int {
	t.Helper()
	all := seenBy(t, provider, "")
	return func(text string) (n int) {
		for _, s := range all {
			n += strings.Count(s.Body, text)
		}
		return n
	}
}

// refusedUnread is a well-formed request that the server refuses without reading its body, and then closes.
const refusedUnread = "after a GET with a body"

// Whatever bytes a caller sends: the provider gets the requests that every reader sees in them, and no hidden one.
func TestOnlyWhatEveryReaderSeesReachesTheProvider(t *testing.T) {
	t.Parallel()
	for _, lane := range []string{"--fast-lane", "--no-fast-lane"} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			s, provider := serveMock(t, map[string]string{"chat": "mock"}, lane)
			vectors := make([]http1test.Vector, countVectors(t, s))
			for i := range vectors {
				all, err := vectorCaller(s, i).Vectors()
				if err != nil {
					t.Fatal(err)
				}
				vectors[i] = all[i]
				last := vectorCaller(s, i).Post(chat("mock/chat", fmt.Sprintf("last %d.", i)), "Connection: close\r\n")
				got := sendRaw(t, strings.TrimPrefix(s.address(), "http://"), all[i].Bytes+last, false)
				if strings.Contains(got, "HTTP/1.1 400 ") && !all[i].Refused { // a reset may keep a refusal from arriving
					t.Errorf("%s: answered\n%s", all[i].Name, got)
				}
			}
			count := reached(t, provider)
			for i, v := range vectors {
				ends := 1
				switch {
				case v.Refused:
					ends = 0
				case v.Name == refusedUnread:
					v.Served, ends = 0, 0
				}
				open, hidden, last := count(fmt.Sprintf("open %d.", i)), count(fmt.Sprintf("hidden %d.", i)), count(fmt.Sprintf("last %d.", i))
				// What is refused may end the connection while an earlier request of it runs.
				if open > v.Served || !v.Refused && open < v.Served || hidden != 0 || last != ends {
					t.Errorf("%s: %d requests, %d hidden and %d last ones reached the provider, want %d, 0 and %d",
						v.Name, open, hidden, last, v.Served, ends)
				}
			}
			s.verifyLedger(t)
		})
	}
}

// startSharingNginx runs nginx with a few connections to a server, which all callers share. It returns its address
// without a scheme.
func startSharingNginx(t *testing.T, s *process, buffering string) string {
	t.Helper()
	upstream := fmt.Sprintf("proxy_ignore_client_abort on; upstream sovereign { server %s; keepalive 4; }",
		strings.TrimPrefix(s.address(), "http://"))
	location := `proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering ` + buffering + ";"
	return strings.TrimPrefix(startNginx(t, "http://sovereign", upstream, location), "http://")
}

// Behind nginx, which repairs some malformed requests and shares its connections to the server between callers: there
// are never more requests at the provider than answers that nginx gave, and the next caller gets its own answer.
func TestBehindNginxNoRequestIsHidden(t *testing.T) {
	t.Parallel()
	for _, buffering := range []string{"on", "off"} {
		t.Run("request buffering "+buffering, func(t *testing.T) {
			t.Parallel()
			s, provider := serveMock(t, map[string]string{"chat": "mock"})
			address := startSharingNginx(t, s, buffering)
			answered := make([]int, countVectors(t, s))
			for i := range answered {
				c := vectorCaller(s, i)
				all, err := c.Vectors()
				if err != nil {
					t.Fatal(err)
				}
				last := c.Post(chat("mock/chat", fmt.Sprintf("last %d.", i)), "Connection: close\r\n")
				answered[i] = strings.Count(sendRaw(t, address, all[i].Bytes+last, true), "HTTP/1.1 200 ")
				next := sendRaw(t, address, c.Post(chat("mock/chat", fmt.Sprintf("next %d.", i)), "Connection: close\r\n"), false)
				if strings.Count(next, "HTTP/1.1 ") != 1 || !strings.HasPrefix(next, "HTTP/1.1 200 ") {
					t.Errorf("%s: the next caller is answered\n%s", all[i].Name, next)
				}
			}
			count := reached(t, provider)
			for i, answers := range answered {
				n := count(fmt.Sprintf("open %d.", i)) + count(fmt.Sprintf("hidden %d.", i)) + count(fmt.Sprintf("last %d.", i))
				if n > answers || count(fmt.Sprintf("next %d.", i)) != 1 {
					t.Errorf("vector %d: nginx gave %d answers, and %d requests reached the provider", i, answers, n)
				}
			}
		})
	}
}
