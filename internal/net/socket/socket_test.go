package socket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair is a connection and its other end.
func pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near, far = dialed.(*net.TCPConn), accepted.(*net.TCPConn)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

const soon = 30 * time.Millisecond

// plenty is more than a socket holds.
var plenty = make([]byte, 64<<20)

// What package net does and says, a socket does and says.
func TestASocketIsReadAndWrittenAsPackageNetDoes(t *testing.T) {
	read := func(c io.ReadWriter) (int, error) { return c.Read(make([]byte, 100)) }
	much := func(c io.ReadWriter) (int, error) {
		n, err := c.Write(plenty)
		return min(n, 1), err
	}
	for name, of := range map[string]struct {
		before func(near, far *net.TCPConn)
		does   func(io.ReadWriter) (int, error)
		while  func(near, far *net.TCPConn)
	}{
		"words":                {func(_, far *net.TCPConn) { _, _ = io.WriteString(far, "hello") }, read, nil},
		"words that come":      {nil, read, func(_, far *net.TCPConn) { _, _ = io.WriteString(far, "hello") }},
		"no room":              {nil, func(c io.ReadWriter) (int, error) { return c.Read(nil) }, nil},
		"nothing to write":     {nil, func(c io.ReadWriter) (int, error) { return c.Write(nil) }, nil},
		"an end":               {func(_, far *net.TCPConn) { _ = far.CloseWrite() }, read, nil},
		"an end that comes":    {nil, read, func(_, far *net.TCPConn) { _ = far.Close() }},
		"a reset":              {nil, read, func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }},
		"closed":               {func(near, _ *net.TCPConn) { _ = near.Close() }, read, nil},
		"closed meanwhile":     {nil, read, func(near, _ *net.TCPConn) { _ = near.Close() }},
		"too late":             {func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, read, nil},
		"in vain":              {nil, read, func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }},
		"written too late":     {func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, much, nil},
		"written in vain":      {nil, much, func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }},
		"written when closed":  {func(near, _ *net.TCPConn) { _ = near.Close() }, much, nil},
		"closed while written": {nil, much, func(near, _ *net.TCPConn) { _ = near.Close() }},
		"written to an end":    {func(near, _ *net.TCPConn) { _ = near.CloseWrite() }, much, nil},
		"reset while written":  {nil, much, func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := func(own bool) string {
				near, far := pair(t)
				if of.before != nil {
					of.before(near, far)
					time.Sleep(soon / 3)
				}
				if of.while != nil {
					time.AfterFunc(soon, func() { of.while(near, far) })
				}
				var c io.ReadWriter = near
				if own {
					c = Of(near)
				}
				n, err := of.does(c)
				var timeout net.Error
				text := fmt.Sprintf("%d %v, late: %v", n, err, errors.As(err, &timeout) && timeout.Timeout())
				return strings.NewReplacer(near.LocalAddr().String(), "near", near.RemoteAddr().String(), "far").Replace(text)
			}
			if got, want := told(true), told(false); got != want {
				t.Errorf("%s\nand package net: %s", got, want)
			}
		})
	}
}

func TestWhoTriesWaitsForNothing(t *testing.T) {
	near, far := pair(t)
	s, room := Of(near), make([]byte, 100)
	if n, err := s.TryRead(room); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !s.Quiet() {
		t.Error(n, err)
	}
	if n, err := s.TryWrite([]byte("hello")); n != 5 || err != nil {
		t.Error(n, err)
	}
	if n, err := s.TryWrite(plenty); n == len(plenty) || err != nil {
		t.Error(n, err)
	}
	_, _ = io.WriteString(far, "ab")
	time.Sleep(soon)
	if n, err := s.TryRead(room[:1]); n != 1 || err != nil || s.Quiet() {
		t.Error(n, err)
	}
	_ = far.CloseWrite()
	time.Sleep(soon)
	if n, err := s.TryRead(room); n != 0 || !errors.Is(err, io.EOF) || s.Quiet() {
		t.Error(n, err)
	}
}

// As with a connection, what several write at once is not mixed up, and who reads gets what nobody else does.
func TestManyShareASocket(t *testing.T) {
	near, far := pair(t)
	_ = near.SetWriteBuffer(1)
	out, in := Of(near), Of(far)
	const many, length = 8, 100_000
	var writing, reading sync.WaitGroup
	for i := range many {
		writing.Go(func() {
			if n, err := out.Write(bytes.Repeat([]byte{byte('a' + i)}, length)); n != length || err != nil {
				t.Error(n, err)
			}
		})
	}
	begin, _ := in.Read(make([]byte, 1))
	first := make([]byte, length*many/2-begin)
	if _, err := io.ReadFull(in, first); err != nil {
		t.Fatal(err)
	}
	for at := length - begin; at < len(first); at += length {
		if whole := first[at:min(at+length, len(first))]; len(bytes.Trim(whole, string(whole[:1]))) > 0 {
			t.Fatal("what was written together comes apart")
		}
	}
	var mutex sync.Mutex
	rest := 0
	for range many {
		reading.Go(func() {
			for room := make([]byte, 10_000); ; {
				n, err := in.Read(room)
				mutex.Lock()
				rest += n
				mutex.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	writing.Wait()
	_ = near.CloseWrite()
	reading.Wait()
	if rest != length*many/2 {
		t.Errorf("%d bytes were read, of %d", rest, length*many/2)
	}
}

func TestAConnectionWithoutASocketHasNone(t *testing.T) {
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	if Of(one) != nil {
		t.Error("a pipe in memory has one")
	}
	near, _ := pair(t)
	if s := Of(near); Of(shared{near, s}) != s {
		t.Error("it is not the one that a connection has already")
	}
}

type shared struct {
	net.Conn
	socket *Socket
}

func (s shared) Socket() *Socket { return s.socket }

// lowest is how many bytes wake who waits.
func lowest(t *testing.T, s *Socket) (bytes int) {
	t.Helper()
	if err := s.Raw.Control(func(fd uintptr) {
		bytes, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT)
	}); err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestWhoWaitsForMuchIsWokenForMuch(t *testing.T) {
	const much = 50_000
	near, far := pair(t)
	s := Of(near)
	if s.WakeAt(much); lowest(t, s) != much {
		t.Fatal(lowest(t, s))
	}
	for range 20 { // on a busy machine, the first may have come before anybody waits
		go func() {
			time.Sleep(soon)
			for range 50 {
				_, _ = far.Write(make([]byte, much/50))
				time.Sleep(time.Millisecond / 10)
			}
		}()
		n, err := s.Read(make([]byte, 2*much))
		if err != nil {
			t.Fatal(err)
		}
		if n == much {
			return
		}
		s.WakeAt(1)
		if _, err := io.ReadFull(s, make([]byte, much-n)); err != nil {
			t.Fatal(err)
		}
		s.WakeAt(much)
	}
	t.Error("it is woken for less")
}
