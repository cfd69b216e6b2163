package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// echoHandlerByFraming answers with the request's body, in a framing that depends on its size.
func echoHandlerByFraming(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if len(body)%3 == 0 { // in chunks
		for piece := range slices.Chunk(body, 1+len(body)/4) {
			_, _ = w.Write(piece)
			w.(http.Flusher).Flush()
		}
		return
	}
	_, _ = w.Write(body)
}

// randomBytes are what random bodies are cut from.
var randomBytes = func() (all [1 << 16]byte) {
	_, _ = rand.NewChaCha8([32]byte{}).Read(all[:])
	return all
}()

// randomBody returns random bytes of a random size, mostly small.
func randomBody() []byte {
	size := rand.IntN(1 << (4 + rand.IntN(11)))
	return randomBytes[rand.IntN(len(randomBytes)-size):][:size]
}

func TestConcurrentExchangesGetTheirOwnResponses(t *testing.T) {
	for secure, rounds := range map[bool]int{false: 200, true: 100} {
		before := goleak.IgnoreCurrent()
		var mutex sync.Mutex
		open := map[net.Conn]bool{}
		changed := sync.NewCond(&mutex)
		s := httptest.NewUnstartedServer(http.HandlerFunc(echoHandlerByFraming))
		s.Config.ConnState = func(conn net.Conn, state http.ConnState) {
			mutex.Lock()
			defer mutex.Unlock()
			open[conn] = true
			if state == http.StateClosed {
				delete(open, conn)
			}
			changed.Broadcast()
		}
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs handshakes that the client has cancelled
		trust := func(*Config) {}
		if secure {
			a := newAuthority(t)
			s.TLS, trust = a.serverConfig(t), a.trust
			s.StartTLS()
		} else {
			s.Start()
		}
		c, err := newClientFor(s.URL, trust, func(c *Config) { c.Idle = 50 })
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range rounds {
					randomExchange(t, c)
				}
			})
		}
		all.Wait()
		if n := idleConns(c); n > 50 || n == 0 {
			t.Errorf("%d idle", n)
		}
		c.Close()
		mutex.Lock()
		for len(open) > 0 { // a connection that leaks blocks the test here
			changed.Wait()
		}
		mutex.Unlock()
		s.Close()
		goleak.VerifyNone(t, before)
	}
}

// randomExchange makes one exchange. Some are cancelled, and some bodies are not read to their end.
func randomExchange(t *testing.T, c *Client) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	want := randomBody()
	fate := rand.IntN(40)
	if fate == 0 {
		timer := time.AfterFunc(time.Duration(rand.IntN(2000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	response, err := c.Do(ctx, &Request{Method: "POST", Target: "/", Body: [][]byte{want[:len(want)/2], want[len(want)/2:]}})
	if err != nil {
		if fate != 0 || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return
	}
	defer func() { _ = response.Body.Close() }()
	if fate == 1 {
		piece, err := response.Body.Next()
		if err != nil && !errors.Is(err, io.EOF) || !bytes.HasPrefix(want, piece) {
			t.Errorf("%v, or another exchange's bytes", err)
		}
		return
	}
	got, err := drain(response.Body, []byte{0, 255, byte(rand.IntN(256))})
	if fate == 0 && errors.Is(err, context.Canceled) {
		return
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes instead of %d: %v", len(got), len(want), err)
	}
}
