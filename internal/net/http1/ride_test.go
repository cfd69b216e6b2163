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

// rideThrough reads a body to its end in turns, and by Next what is not for turns.
func rideThrough(r *poller.Poller, b *Body) (whole []byte, turns int, err error) {
	for err == nil {
		b.Poll(r, func(time.Time) bool {
			turns++
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
	return whole, turns, err
}

// aStream is a body in chunks of any size, as it is sent. Some are broken somewhere.
func aStream(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(40) {
		size := 1 + random.IntN(300)
		if random.IntN(20) == 0 {
			size = 1 + random.IntN(3*mostBuffer)
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

// dribble sends in pieces of any size, with pauses.
func dribble(to io.Writer, wire string, random *rand.Rand) {
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

// In turns a body reads as it does otherwise, wherever it is cut and whatever it ends with, and its connection is as good for the next.
func TestABodyReadsInTurnsAsItReadsAtOnce(t *testing.T) {
	plainlyAndSecurely(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
		r := poller.New(1)
		defer r.Close()
		taken := 0
		for seed := range uint64(150) {
			wire := aStream(rand.New(rand.NewPCG(seed, 1)))
			s := serving(t, secure, func(l *farEnd) {
				for _, ok := l.request(); ok; _, ok = l.request() {
					dribble(l.Conn, chunked+wire, rand.New(rand.NewPCG(seed, 2)))
					if !strings.HasSuffix(wire, "\r\n\r\n") {
						return
					}
				}
			})
			c := reaching(t, s.base, trust)
			response, err := c.Do(context.Background(), get())
			if err != nil {
				t.Fatal(err)
			}
			want, wrong := drain(response.Body, nil)
			_ = response.Body.Close()
			for again := range 2 {
				response, err := c.Do(context.Background(), get())
				if err != nil {
					t.Fatal(err)
				}
				got, turns, err := rideThrough(r, response.Body)
				taken += turns
				if (err == nil) != (wrong == nil) || errors.Is(err, ErrMalformed) != errors.Is(wrong, ErrMalformed) || !bytes.Equal(got, want) {
					t.Fatalf("stream %d, time %d: %d bytes and %v, want %d and %v", seed, again, len(got), err, len(want), wrong)
				}
				_ = response.Body.Close()
			}
			if wrong == nil && s.lines.Load() != 1 {
				t.Errorf("stream %d: %d connections for three requests", seed, s.lines.Load())
			}
		}
		if taken < 500 {
			t.Errorf("%d turns in all", taken)
		}
	})
}

// The end of a request ends a ride, at whatever moment, and reading after it.
func TestARideEndsWithItsRequest(t *testing.T) {
	plainlyAndSecurely(t, func(t *testing.T, secure *tls.Config, trust func(*Config)) {
		r := poller.New(1)
		defer r.Close()
		s := serving(t, secure, func(l *farEnd) {
			_, _ = l.request()
			_, err := io.WriteString(l.Conn, chunked)
			for err == nil {
				_, err = io.WriteString(l.Conn, "5\r\nhello\r\n")
				time.Sleep(100 * time.Microsecond)
			}
		})
		c := reaching(t, s.base, trust)
		for i := range 30 {
			ctx, cancel := context.WithCancel(context.Background())
			response, err := c.Do(ctx, get())
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
			done := make(chan error, 1)
			go func() {
				_, _, err := rideThrough(r, response.Body)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("it goes on")
			}
			_ = response.Body.Close()
		}
	})
}
