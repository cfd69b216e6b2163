package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

// eventually asks until the answer is right. The fault suite measures the promised time. Elsewhere the limit is none: a
// test that waits that long hangs.
func eventually(t *testing.T, promised time.Duration, what string, ask func() bool) {
	t.Helper()
	limit := 2 * time.Minute
	if os.Getenv("SOVEREIGN_DRILLS") == "full" {
		limit = promised
	}
	for deadline := time.Now().Add(limit); !ask(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func statusOf(t *testing.T, handler http.Handler, method, path, key string) int {
	t.Helper()
	return statusWithin(context.Background(), handler, method, path, key)
}

func statusWithin(ctx context.Context, handler http.Handler, method, path, key string) int {
	request := httptest.NewRequestWithContext(ctx, method, path, http.NoBody)
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

// A server that loses the serving lock refuses everything, on the network and on the socket, for as long as another
// holds it; and when it is back, it knows what changed meanwhile.
func TestDrillLostLockFencesAndItsReturnRefills(t *testing.T) {
	s := Storage{DataDir: short(t) + "/data", DatabaseURL: dbtest.Postgres(t)}
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	i := openInstance(t, s)
	_, keys := addCallers(t, i)
	network := func(key string) int { return statusOf(t, i.routers.public, http.MethodGet, "/v1/no-such-route", key) } // asks no database
	socket := func() int { return statusOf(t, i.routers.operators, http.MethodGet, "/admin/no-such-route", "") }
	if network(keys.Owner) != 404 || socket() != 404 {
		t.Fatal("not served before")
	}

	ctx := t.Context()
	rival, err := pgx.Connect(ctx, s.DatabaseURL.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rival.Close(context.Background()) }()
	if _, err := rival.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the rival gets the lock", func() bool {
		var got bool
		err := rival.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(0x536f7665726569)).Scan(&got)
		return err == nil && got
	})
	eventually(t, 5*time.Second, "the network is refused", func() bool { return network(keys.Owner) == 503 })
	if got := socket(); got != 503 {
		t.Errorf("the socket of a fenced server answers %d", got)
	}
	// The rival revokes, without this server's feed being told.
	if _, err := rival.Exec(ctx, `UPDATE api_keys SET revoked_at = $1 WHERE user_id = (SELECT id FROM users WHERE email = 'owner@one.test')`, int64(clock.Now())); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * leaseEvery)
	if got := network(keys.Admin); got != 503 {
		t.Errorf("served while another holds the lock: %d", got)
	}
	if err := rival.Close(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "served again", func() bool { return network(keys.Admin) == 404 })
	if got := network(keys.Owner); got != 401 {
		t.Errorf("a key that was revoked meanwhile: %d", got)
	}
}

// A proxy stops passing packets on the connections it has, as a lost NAT entry does, and passes new ones. Nothing is
// reset and nothing answers; the server must notice by itself and be back soon.
func TestDrillSilentlyDeadConnectionsAreGivenUp(t *testing.T) {
	direct := dbtest.Postgres(t)
	address, err := url.Parse(direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	proxy := newBlackHole(t, address.Host)
	through := strings.Replace(direct.Reveal(), address.Host, proxy.address, 1)
	s := Storage{DataDir: short(t) + "/data", DatabaseURL: secret.New(through)}
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	i := openInstance(t, s)
	_, keys := addCallers(t, i)
	// A request whose query is under way on such a connection ends at its own timeout. Others must be served before.
	ask := func() int {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return statusWithin(ctx, i.routers.public, http.MethodGet, "/v1/setup/status", keys.Owner)
	}
	if got := ask(); got != 200 {
		t.Fatalf("before: %d", got)
	}
	proxy.swallow()
	// The lost lock is PostgreSQL's to give up, which it does when its own keep-alive fails; here we do it.
	conn, err := pgx.Connect(t.Context(), direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, 25*time.Second, "served again", func() bool { return ask() == 200 })
	t.Logf("served again %v after the connections went silent", time.Since(began))
	eventually(t, 25*time.Second, "the server gives its own connection up, and takes the lock anew", func() bool {
		var held int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&held)
		return err == nil && held > 0
	})
	eventually(t, 5*time.Second, "served after the lock was taken anew", func() bool { return ask() == 200 && i.gate() == nil })
}

type blackHole struct {
	address string
	mu      sync.Mutex
	open    []*atomic.Bool
}

func newBlackHole(t *testing.T, target string) *blackHole {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	b := &blackHole{address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			dead := &atomic.Bool{}
			b.mu.Lock()
			b.open = append(b.open, dead)
			b.mu.Unlock()
			go pass(server, client, dead)
			go pass(client, server, dead)
		}
	}()
	return b
}

func pass(to io.WriteCloser, from io.Reader, dead *atomic.Bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if dead.Load() {
			if err != nil {
				return // swallowed, its end too
			}
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

func (b *blackHole) swallow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, dead := range b.open {
		dead.Store(true)
	}
}
