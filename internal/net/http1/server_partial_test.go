package http1

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The caller stops in the middle of a request and keeps the connection open. What net/http's server answers at once, a
// Server answers at once too.
func TestAPartialRequestIsAnsweredLikeNetHTTP(t *testing.T) {
	seeds := requestSeeds()
	for _, l := range []string{"X", "X : 1", " X: 1", "X: \x00", ": 1", "X: 1\nY: 2", "Content-Length: 1\r\nContent-Length: 2", "\n", "Y: 1\r\n\n"} {
		seeds = append(seeds, postHead+l+"\r\n", plainPost("a")+postHead+l+"\r\n", postHead+"A: 1\r\n"+l+"\r\nB: ")
	}
	for _, l := range []string{"POST /v1/chat/completions\r\n", "POST /v1/chat/completions HTTP/1.x\r\n", "POST /v1/chat/completions HTTP/3.0\r\n", "POST /v1/%zz HTTP/1.1\r\n", "POST /\n", "POST \n", "POST /v1/chat/completions HTTP/1.1\n", "\r\n", "G", "G\r\n"} {
		seeds = append(seeds, l, plainPost("a")+l, l+"Host: a\r\n")
	}
	for _, seed := range seeds {
		if len(seed) > 3000 || strings.Contains(seed, "Length: 8\r\n\r\n{\"a\":1}") {
			continue
		}
		for _, pieces := range []int{1, 2, 7} {
			responses := map[bool][]parsedResponse{}
			for _, fast := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) { responses[fast] = settledResponses(t, fast, seed, pieces) })
			}
			if diff := cmp.Diff(responses[false], responses[true]); diff != "" {
				t.Errorf("%q in %d pieces: net/http alone is -, the Server is +\n%s", seed, pieces, diff)
			}
		}
	}
}

// settledResponses returns what was answered once nothing happens any more.
func settledResponses(t *testing.T, fast bool, wire string, pieces int) []parsedResponse {
	t.Helper()
	var mutex sync.Mutex
	var seen []string
	_, dial := startPipedServer(t, fast, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mutex.Lock()
		seen = append(seen, r.Method+"\n")
		mutex.Unlock()
		_, _ = io.WriteString(w, describe(r, body, err))
	}))
	conn := dial()
	var received bytes.Buffer
	go func() {
		for piece := make([]byte, 4096); ; {
			n, err := conn.Read(piece)
			mutex.Lock()
			received.Write(piece[:n])
			if err != nil {
				fmt.Fprint(&received, err)
			}
			mutex.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for i := range pieces {
			_, _ = io.WriteString(conn, wire[i*len(wire)/pieces:(i+1)*len(wire)/pieces])
		}
	}()
	time.Sleep(time.Second)
	synctest.Wait()
	mutex.Lock()
	defer mutex.Unlock()
	return parseResponses(bytes.Clone(received.Bytes()), seen)
}
