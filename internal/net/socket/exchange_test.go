//go:build linux

package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A request arrives whole and once, and so does its response, whatever the sizes of the parts and of the send buffer.
func TestRoundTripSendsTheRequestWhole(t *testing.T) {
	near, far := tcpPair(t)
	tight, tightFar := tcpPair(t)
	_ = tight.SetWriteBuffer(1)
	large, small := Of(near), Of(tight)
	first := map[*Socket]bool{large: true, small: true}
	rapid.Check(t, func(t *rapid.T) {
		s, other := large, far
		if rapid.Bool().Draw(t, "small send buffer") {
			s, other = small, tightFar
		}
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 100), rapid.IntRange(1000, 60_000)), 0, 20).Draw(t, "parts")
		var parts [][]byte
		var all []byte
		for i, n := range sizes {
			part := bytes.Repeat([]byte{byte(i)}, n)
			parts, all = append(parts, part), append(all, part...)
		}
		parts, all = append(parts, []byte("\n")), append(all, '\n')
		got := make(chan []byte, 1)
		go func() {
			request := make([]byte, len(all))
			_, _ = io.ReadFull(other, request)
			got <- request
			_, _ = io.WriteString(other, "response")
		}()
		sent := 0
		x := &Exchange{Request: parts, First: first[s], OnSent: func() { sent++ }, Buffer: make([]byte, 100)}
		first[s] = false
		if err := s.RoundTrip(x); err != nil || x.ReadErr != nil || sent != 1 {
			t.Fatal(err, x.ReadErr, sent)
		}
		if !bytes.Equal(<-got, all) {
			t.Fatal("the peer received another request")
		}
		for x.N < len("response") {
			n, err := s.Read(x.Buffer[x.N:])
			if err != nil {
				t.Fatal(err)
			}
			x.N += n
		}
		if got := string(x.Buffer[:x.N]); got != "response" {
			t.Fatal(got)
		}
	})
}

func TestRoundTripSendsNothingOnAStaleConnection(t *testing.T) {
	for name, before := range map[string]func(far *net.TCPConn){
		"sent data": func(far *net.TCPConn) { _, _ = io.WriteString(far, "busy") },
		"closed":    func(far *net.TCPConn) { _ = far.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := tcpPair(t)
			before(far)
			time.Sleep(shortDelay)
			x := &Exchange{Request: [][]byte{[]byte("hello")}, OnSent: func() { t.Error("the request was sent") }, Buffer: make([]byte, 100)}
			if err := Of(near).RoundTrip(x); !errors.Is(err, ErrStale) {
				t.Error(err)
			}
			_ = near.CloseWrite()
			if got, err := io.ReadAll(far); len(got) > 0 || err != nil {
				t.Errorf("%x, %v", got, err)
			}
		})
	}
}

// On a new connection, what the peer sent before the request is the response: a refusal, mostly.
func TestRoundTripReadsWhatArrivedBeforeTheFirstRequest(t *testing.T) {
	near, far := tcpPair(t)
	_, _ = io.WriteString(far, "busy")
	time.Sleep(shortDelay)
	x := &Exchange{Request: [][]byte{[]byte("hello")}, First: true, OnSent: func() {}, Buffer: make([]byte, 100)}
	if err := Of(near).RoundTrip(x); err != nil || string(x.Buffer[:x.N]) != "busy" {
		t.Errorf("%x, %v", x.Buffer[:x.N], err)
	}
}

// A failure before the request was sent is returned by RoundTrip, one after that is in ReadErr.
func TestRoundTripReportsTheEndOfTheConnection(t *testing.T) {
	for name, of := range map[string]struct {
		before, while func(near, far *net.TCPConn)
		err, readErr  error
	}{
		"half closed":         {nil, func(_, far *net.TCPConn) { _ = far.CloseWrite() }, nil, io.EOF},
		"reset":               {nil, func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }, nil, syscall.ECONNRESET},
		"deadline passes":     {nil, func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, nil, nil},
		"deadline has passed": {func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, nil, os.ErrDeadlineExceeded, nil},
		"closed":              {func(near, _ *net.TCPConn) { _ = near.Close() }, nil, net.ErrClosed, nil},
		"closed for writing":  {func(near, _ *net.TCPConn) { _ = near.CloseWrite() }, nil, syscall.EPIPE, nil},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := tcpPair(t)
			if of.before != nil {
				of.before(near, far)
			}
			if of.while != nil {
				time.AfterFunc(shortDelay, func() { of.while(near, far) })
			}
			x := &Exchange{Request: [][]byte{[]byte("hello")}, First: true, OnSent: func() {}, Buffer: make([]byte, 100)}
			if err := Of(near).RoundTrip(x); !errors.Is(err, of.err) || !errors.Is(x.ReadErr, of.readErr) || x.N != 0 {
				t.Error(x.N, err, x.ReadErr)
			}
		})
	}
}
