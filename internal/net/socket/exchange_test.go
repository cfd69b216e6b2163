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

// Whatever it is made of, and however little the socket holds, a question comes whole and once, and so does what is said to it.
func TestAQuestionIsAskedWhole(t *testing.T) {
	near, far := pair(t)
	tight, farther := pair(t)
	_ = tight.SetWriteBuffer(1)
	wide, narrow := Of(near), Of(tight)
	first := map[*Socket]bool{wide: true, narrow: true}
	rapid.Check(t, func(t *rapid.T) {
		s, other := wide, far
		if rapid.Bool().Draw(t, "little at once") {
			s, other = narrow, farther
		}
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 100), rapid.IntRange(1000, 60_000)), 0, 20).Draw(t, "pieces")
		var pieces [][]byte
		var all []byte
		for i, n := range sizes {
			piece := bytes.Repeat([]byte{byte(i)}, n)
			pieces, all = append(pieces, piece), append(all, piece...)
		}
		pieces, all = append(pieces, []byte("\n")), append(all, '\n')
		got := make(chan []byte, 1)
		go func() {
			question := make([]byte, len(all))
			_, _ = io.ReadFull(other, question)
			got <- question
			_, _ = io.WriteString(other, "answer")
		}()
		sent := 0
		q := &Question{Text: pieces, First: first[s], Sent: func() { sent++ }, Room: make([]byte, 100)}
		first[s] = false
		if err := s.Ask(q); err != nil || q.Failed != nil || sent != 1 {
			t.Fatal(err, q.Failed, sent)
		}
		if !bytes.Equal(<-got, all) {
			t.Fatal("it came otherwise than it was asked")
		}
		for q.Heard < len("answer") {
			n, err := s.Read(q.Room[q.Heard:])
			if err != nil {
				t.Fatal(err)
			}
			q.Heard += n
		}
		if said := string(q.Room[:q.Heard]); said != "answer" {
			t.Fatal(said)
		}
	})
}

func TestWhoHasSpokenOrLeftIsNotAsked(t *testing.T) {
	for name, before := range map[string]func(far *net.TCPConn){
		"spoke": func(far *net.TCPConn) { _, _ = io.WriteString(far, "busy") },
		"left":  func(far *net.TCPConn) { _ = far.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			before(far)
			time.Sleep(soon)
			q := &Question{Text: [][]byte{[]byte("hello")}, Sent: func() { t.Error("it was sent") }, Room: make([]byte, 100)}
			if err := Of(near).Ask(q); !errors.Is(err, ErrSpoke) {
				t.Error(err)
			}
			_ = near.CloseWrite()
			if got, err := io.ReadAll(far); len(got) > 0 || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// Who is asked for the first time may have said already what is to be heard.
func TestWhoSpeaksFirstIsHeard(t *testing.T) {
	near, far := pair(t)
	_, _ = io.WriteString(far, "busy")
	time.Sleep(soon)
	q := &Question{Text: [][]byte{[]byte("hello")}, First: true, Sent: func() {}, Room: make([]byte, 100)}
	if err := Of(near).Ask(q); err != nil || string(q.Room[:q.Heard]) != "busy" {
		t.Errorf("%q, %v", q.Room[:q.Heard], err)
	}
}

// What comes instead of an answer is told to who reads, once the question was sent, and to who asks, before.
func TestAnEndInsteadOfAnAnswer(t *testing.T) {
	for name, of := range map[string]struct {
		before, while func(near, far *net.TCPConn)
		asks, reads   error
	}{
		"an end":             {nil, func(_, far *net.TCPConn) { _ = far.CloseWrite() }, nil, io.EOF},
		"a reset":            {nil, func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }, nil, syscall.ECONNRESET},
		"too late":           {nil, func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, nil, nil},
		"too late before":    {func(near, _ *net.TCPConn) { _ = near.SetDeadline(time.Unix(1, 0)) }, nil, os.ErrDeadlineExceeded, nil},
		"closed":             {func(near, _ *net.TCPConn) { _ = near.Close() }, nil, net.ErrClosed, nil},
		"closed for writing": {func(near, _ *net.TCPConn) { _ = near.CloseWrite() }, nil, syscall.EPIPE, nil},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			if of.before != nil {
				of.before(near, far)
			}
			if of.while != nil {
				time.AfterFunc(soon, func() { of.while(near, far) })
			}
			q := &Question{Text: [][]byte{[]byte("hello")}, First: true, Sent: func() {}, Room: make([]byte, 100)}
			if err := Of(near).Ask(q); !errors.Is(err, of.asks) || !errors.Is(q.Failed, of.reads) || q.Heard != 0 {
				t.Error(q.Heard, err, q.Failed)
			}
		})
	}
}
