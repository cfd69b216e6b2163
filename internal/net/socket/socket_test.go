//go:build linux

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

// tcpPair returns both ends of a loopback connection.
func tcpPair(t testing.TB) (near, far *net.TCPConn) {
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

const shortDelay = 30 * time.Millisecond

// oversized is more than the buffers of a socket hold.
var oversized = make([]byte, 64<<20)

// Results and error texts are those of package net.
func TestReadAndWriteBehaveLikePackageNet(t *testing.T) {
	read := func(c io.ReadWriter) (int, error) { return c.Read(make([]byte, 100)) }
	writeMuch := func(c io.ReadWriter) (int, error) {
		n, err := c.Write(oversized)
		return min(n, 1), err
	}
	for name, of := range map[string]struct {
		before func(near, far *net.TCPConn)
		does   func(io.ReadWriter) (int, error)
		while  func(near, far *net.TCPConn)
	}{
		"data":                         {func(_, far *net.TCPConn) { _, _ = io.WriteString(far, "hello") }, read, nil},
		"data arrives":                 {nil, read, func(_, far *net.TCPConn) { _, _ = io.WriteString(far, "hello") }},
		"empty buffer":                 {nil, func(c io.ReadWriter) (int, error) { return c.Read(nil) }, nil},
		"empty write":                  {nil, func(c io.ReadWriter) (int, error) { return c.Write(nil) }, nil},
		"half closed":                  {func(_, far *net.TCPConn) { _ = far.CloseWrite() }, read, nil},
		"peer closes":                  {nil, read, func(_, far *net.TCPConn) { _ = far.Close() }},
		"peer resets":                  {nil, read, func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }},
		"closed":                       {func(near, _ *net.TCPConn) { _ = near.Close() }, read, nil},
		"closed during read":           {nil, read, func(near, _ *net.TCPConn) { _ = near.Close() }},
		"deadline has passed":          {func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, read, nil},
		"deadline passes":              {nil, read, func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }},
		"write after deadline":         {func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, writeMuch, nil},
		"deadline passes during write": {nil, writeMuch, func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }},
		"write when closed":            {func(near, _ *net.TCPConn) { _ = near.Close() }, writeMuch, nil},
		"closed during write":          {nil, writeMuch, func(near, _ *net.TCPConn) { _ = near.Close() }},
		"write after CloseWrite":       {func(near, _ *net.TCPConn) { _ = near.CloseWrite() }, writeMuch, nil},
		"reset during write":           {nil, writeMuch, func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := func(own bool) string {
				near, far := tcpPair(t)
				if of.before != nil {
					of.before(near, far)
					time.Sleep(shortDelay / 3)
				}
				if of.while != nil {
					time.AfterFunc(shortDelay, func() { of.while(near, far) })
				}
				var c io.ReadWriter = near
				if own {
					c = Of(near)
				}
				n, err := of.does(c)
				var timeout net.Error
				text := fmt.Sprintf("%d %v, timeout: %v", n, err, errors.As(err, &timeout) && timeout.Timeout())
				return strings.NewReplacer(near.LocalAddr().String(), "near", near.RemoteAddr().String(), "far").Replace(text)
			}
			if got, want := result(true), result(false); got != want {
				t.Errorf("%s\nand package net: %s", got, want)
			}
		})
	}
}

func TestTryReadAndTryWriteDoNotBlock(t *testing.T) {
	near, far := tcpPair(t)
	s, buffer := Of(near), make([]byte, 100)
	if n, err := s.TryRead(buffer); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || s.Stale() {
		t.Error(n, err)
	}
	if n, err := s.TryWrite([]byte("hello")); n != 5 || err != nil {
		t.Error(n, err)
	}
	if n, err := s.TryWrite(oversized); n == len(oversized) || err != nil {
		t.Error(n, err)
	}
	_, _ = io.WriteString(far, "ab")
	time.Sleep(shortDelay)
	if n, err := s.TryRead(buffer[:1]); n != 1 || err != nil || !s.Stale() {
		t.Error(n, err)
	}
	_ = far.CloseWrite()
	time.Sleep(shortDelay)
	if n, err := s.TryRead(buffer); n != 0 || !errors.Is(err, io.EOF) || !s.Stale() {
		t.Error(n, err)
	}
}

// Concurrent writes are not interleaved, and each byte is read once.
func TestConcurrentReadsAndWritesAreSerialized(t *testing.T) {
	near, far := tcpPair(t)
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
			t.Fatal("two writes are interleaved")
		}
	}
	var mutex sync.Mutex
	rest := 0
	for range many {
		reading.Go(func() {
			for buffer := make([]byte, 10_000); ; {
				n, err := in.Read(buffer)
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

func TestOfReturnsNilWithoutAFileDescriptor(t *testing.T) {
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	if Of(one) != nil {
		t.Error("a net.Pipe has a socket")
	}
	near, _ := tcpPair(t)
	if s := Of(near); Of(socketHolder{near, s}) != s {
		t.Error("Of ignores the connection's own socket")
	}
}

type socketHolder struct {
	net.Conn
	socket *Socket
}

func (s socketHolder) Socket() *Socket { return s.socket }

// readLowWater returns SO_RCVLOWAT.
func readLowWater(t *testing.T, s *Socket) (bytes int) {
	t.Helper()
	if err := s.Raw.Control(func(fd uintptr) {
		bytes, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT)
	}); err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestSetReadLowWaterDelaysTheWakeup(t *testing.T) {
	const mark = 50_000
	near, far := tcpPair(t)
	s := Of(near)
	if s.SetReadLowWater(mark); readLowWater(t, s) != mark {
		t.Fatal(readLowWater(t, s))
	}
	for range 20 { // on a busy machine, bytes may arrive before Read blocks
		go func() {
			time.Sleep(shortDelay)
			for range 50 {
				_, _ = far.Write(make([]byte, mark/50))
				time.Sleep(time.Millisecond / 10)
			}
		}()
		n, err := s.Read(make([]byte, 2*mark))
		if err != nil {
			t.Fatal(err)
		}
		if n == mark {
			return
		}
		s.SetReadLowWater(1)
		if _, err := io.ReadFull(s, make([]byte, mark-n)); err != nil {
			t.Fatal(err)
		}
		s.SetReadLowWater(mark)
	}
	t.Error("Read is always woken below the mark")
}
