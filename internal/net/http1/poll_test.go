package http1

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sovereign/internal/net/poller"
)

// pollBody reads a body to its end with Poll, and with Next where TryNext returns false.
func pollBody(r *poller.Poller, b *Body) (whole []byte, callbacks int, err error) {
	for err == nil {
		b.Poll(r, func(time.Time) bool {
			callbacks++
			for {
				piece, ok := b.TryNext()
				if len(piece) == 0 {
					return ok
				}
				whole = append(whole, piece...)
			}
		})
		var piece []byte
		piece, err = b.Next()
		whole = append(whole, piece...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return whole, callbacks, err
}

// randomChunkedStream returns an encoded body of chunks of random sizes. Some are malformed or truncated.
func randomChunkedStream(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(40) {
		size := 1 + random.IntN(300)
		if random.IntN(20) == 0 {
			size = 1 + random.IntN(3*maxBuffer)
		}
		extension := ""
		if random.IntN(10) == 0 {
			extension = ";" + strings.Repeat("x", random.IntN(60))
		}
		fmt.Fprintf(&b, "%x%s\r\n%s\r\n", size, extension, strings.Repeat(string(rune('a'+random.IntN(26))), size))
	}
	b.WriteString([]string{"0\r\n\r\n", "0\r\n\r\n", "00\r\nA: b\r\n\r\n", "", "0\r\n", "zz\r\n", "5\r\nab", "\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", strings.Repeat("1", 300)}[random.IntN(10)])
	return b.String()
}

// writeInPieces writes pieces of random sizes, with pauses.
func writeInPieces(to io.Writer, wire string, random *rand.Rand) {
	for len(wire) > 0 {
		n := min(len(wire), 1+random.IntN([]int{3, 30, 300, 20_000}[random.IntN(4)]))
		if _, err := io.WriteString(to, wire[:n]); err != nil {
			return
		}
		if wire = wire[n:]; random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
		}
	}
}

// Poll and TryNext read what Next reads, however the body arrives and ends, and the connection can be reused.
func TestPollReadsWhatNextReads(t *testing.T) {
	eachTransport(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
		r := poller.New(1)
		defer r.Close()
		total := 0
		for seed := range uint64(150) {
			wire := randomChunkedStream(rand.New(rand.NewPCG(seed, 1)))
			s := newOrigin(t, secure, func(oc *originConn) {
				for _, ok := oc.readRequest(); ok; _, ok = oc.readRequest() {
					writeInPieces(oc.Conn, chunked+wire, rand.New(rand.NewPCG(seed, 2)))
					if !strings.HasSuffix(wire, "\r\n\r\n") {
						return
					}
				}
			})
			c := newClient(t, s.url, trust)
			response, err := c.Do(context.Background(), getRoot())
			if err != nil {
				t.Fatal(err)
			}
			want, wrong := drain(response.Body, nil)
			_ = response.Body.Close()
			for again := range 2 {
				response, err := c.Do(context.Background(), getRoot())
				if err != nil {
					t.Fatal(err)
				}
				got, callbacks, err := pollBody(r, response.Body)
				total += callbacks
				if (err == nil) != (wrong == nil) || errors.Is(err, ErrMalformed) != errors.Is(wrong, ErrMalformed) || !bytes.Equal(got, want) {
					t.Fatalf("stream %d, time %d: %d bytes and %v, want %d and %v", seed, again, len(got), err, len(want), wrong)
				}
				_ = response.Body.Close()
			}
			if wrong == nil && s.accepted.Load() != 1 {
				t.Errorf("stream %d: %d connections for three requests", seed, s.accepted.Load())
			}
		}
		if total < 500 {
			t.Errorf("%d callbacks in all", total)
		}
	})
}

// The end of the context ends Poll at any moment, and reading after it.
func TestTheEndOfTheContextEndsPoll(t *testing.T) {
	eachTransport(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
		r := poller.New(1)
		defer r.Close()
		s := newOrigin(t, secure, func(oc *originConn) {
			_, _ = oc.readRequest()
			_, err := io.WriteString(oc.Conn, chunked)
			for err == nil {
				_, err = io.WriteString(oc.Conn, "5\r\nhello\r\n")
				time.Sleep(100 * time.Microsecond)
			}
		})
		c := newClient(t, s.url, trust)
		for i := range 30 {
			ctx, cancel := context.WithCancel(context.Background())
			response, err := c.Do(ctx, getRoot())
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
			done := make(chan error, 1)
			go func() {
				_, _, err := pollBody(r, response.Body)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("Poll goes on")
			}
			_ = response.Body.Close()
		}
	})
}
