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

// echoed is a server that answers with what it is sent, in a framing that depends on the size.
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

// noise is what bodies are cut from.
var randomBytes = func() (all [1 << 16]byte) {
	_, _ = rand.NewChaCha8([32]byte{}).Read(all[:])
	return all
}()

// aBody has random bytes, and a random size: most are small.
func randomBody() []byte {
	size := rand.IntN(1 << (4 + rand.IntN(11)))
	return randomBytes[rand.IntN(len(randomBytes)-size):][:size]
}

func TestManyExchangesAtOnceAreEachAnsweredWithTheirOwn(t *testing.T) {
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
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of handshakes that were given up
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
		for len(open) > 0 { // a connection that leaks keeps the test here
			changed.Wait()
		}
		mutex.Unlock()
		s.Close()
		goleak.VerifyNone(t, before)
	}
}

// manyOne is one of many exchanges: some end early, some are left by their readers.
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
			t.Errorf("%v, or another's bytes", err)
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
