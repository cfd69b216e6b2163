package wallet

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A wire relays connections to PostgreSQL. When it is armed, it cuts the connection whose client sends COMMIT, and does
// with that message what the test says.
type wire struct {
	t        *testing.T
	server   string
	listener net.Listener
	group    sync.WaitGroup

	mu    sync.Mutex
	armed func(server net.Conn, commit []byte) // nil to relay everything
	conns []net.Conn
}

// wireTo returns a wire and the URL of the same database by way of it.
func wireTo(t *testing.T, to secret.Text) (*wire, secret.Text) {
	t.Helper()
	address, err := url.Parse(to.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, server: address.Host}
	if w.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	w.group.Go(w.accept)
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.mu.Lock()
		for _, conn := range w.conns {
			_ = conn.Close()
		}
		w.mu.Unlock()
		w.group.Wait()
	})
	address.Host = w.listener.Addr().String()
	return w, secret.New(address.String())
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil {
			w.t.Error(err)
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		w.group.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		w.group.Go(func() { w.relay(client, server) })
	}
}

func (w *wire) relay(client, server net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			_ = server.Close()
			return
		}
		w.mu.Lock()
		cut := w.armed
		if cut != nil && bytes.Contains(bytes.ToLower(buffer[:n]), []byte("commit")) {
			w.armed = nil
			w.mu.Unlock()
			_ = client.Close() // first: no answer arrives
			cut(server, bytes.Clone(buffer[:n]))
			return
		}
		w.mu.Unlock()
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) arm(cut func(server net.Conn, commit []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = cut
}

// The answer to a COMMIT is lost on a real connection. Where wallets are shared, a hold is its row alone: its money is
// set aside when the row has committed, and free when it never will.
func TestALostAnswerToCommitNeitherLeaksNorFreesAHold(t *testing.T) {
	type late = chan func()
	for name, one := range map[string]struct {
		cut  func(late) func(server net.Conn, commit []byte)
		open bool // the row exists in the end
	}{
		"it never arrives": {func(late) func(net.Conn, []byte) {
			return func(server net.Conn, _ []byte) { _ = server.Close() }
		}, false},
		"it has committed": {func(late) func(net.Conn, []byte) {
			return func(server net.Conn, commit []byte) {
				_, _ = server.Write(commit) // the connection to the server stays open
			}
		}, true},
		"it commits while we look": {func(l late) func(net.Conn, []byte) {
			return func(server net.Conn, commit []byte) { l <- func() { _, _ = server.Write(commit) } }
		}, true},
		"it is rolled back while we look": {func(l late) func(net.Conn, []byte) {
			return func(server net.Conn, _ []byte) { l <- func() { _ = server.Close() } }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.EachMigrated(t, func(t *testing.T, folder string, to secret.Text) {
				if to.Empty() {
					t.Skip("SQLite has no connection to lose")
				}
				plain := dbtest.Open(t, folder, to)
				cut, by := wireTo(t, to)
				b := startProcess(t, dbtest.Open(t, folder, by), journaltest.NewDisk())
				b.fund("ws_a", 1000)
				l := make(late, 1)
				cut.arm(one.cut(l))
				if err := b.openHold("ws_a", "rs_1", 700); err == nil {
					t.Fatal("the answer was not lost")
				}
				if strings.Contains(name, "while") {
					b.wantBalance("ws_a", funds.Balance{Balance: 1000})
					(<-l)()
				}
				want := funds.Balance{Balance: 1000}
				if one.open {
					want.Held = 700
				}
				for end := time.Now().Add(2 * time.Minute); dbtest.Count(t, plain, "named_holds") > 0 != one.open; {
					if time.Sleep(10 * time.Millisecond); time.Now().After(end) {
						t.Fatal("the row did not become what it must")
					}
				}
				b.wantBalance("ws_a", want)
				next := b.killed()
				next.recover()
				next.wantBalance("ws_a", want)
				if one.open {
					next.spendFrom("ws_a", "rs_1", "req_1", 5)
				}
			})
		})
	}
}

// The loop resolves by itself, and goes on until the database answers.
func TestRunResolvesHoldsInDoubt(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.poster.Holds.Run(ctx) }()
		left, leave := context.WithCancel(t.Context())
		if _, err := d.Tx(left, func(tx *db.Tx) error {
			err := b.poster.Holds.Open(left, tx, "ws_a", "rs_1", "reward", 700)
			leave() // the COMMIT fails
			return err
		}); err == nil {
			t.Fatal("committed")
		}
		for b.balance("ws_a").Held != 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-done
	})
}
