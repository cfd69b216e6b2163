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

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
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

// through returns the configuration of a server that reaches PostgreSQL by a proxy.
func through(t *testing.T, direct secret.Text) (Storage, *blackHole) {
	t.Helper()
	address, err := url.Parse(direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	proxy := newBlackHole(t, address.Host)
	s := Storage{DataDir: short(t) + "/data", DatabaseURL: secret.New(strings.Replace(direct.Reveal(), address.Host, proxy.address, 1))}
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	return s, proxy
}

// A server without its database refuses everything, on the network and on the socket, as soon as its lease has run out.
// When it is back, it knows what the others changed meanwhile.
func TestDrillALostLeaseClosesTheGateAndItsReturnRefills(t *testing.T) {
	direct := dbtest.Postgres(t)
	s, proxy := through(t, direct)
	i := openInstance(t, s)
	_, keys := addCallers(t, i)
	network := func(key string) int { return statusOf(t, i.routers.public, http.MethodGet, "/v1/no-such-route", key) } // asks no database
	socket := func() int { return statusOf(t, i.routers.operators, http.MethodGet, "/admin/no-such-route", "") }
	if network(keys.Owner) != 404 || socket() != 404 {
		t.Fatal("not served before")
	}
	proxy.cut(true)
	eventually(t, 5*time.Second, "the network is refused", func() bool { return network(keys.Owner) == 503 })
	if got := socket(); got != 503 {
		t.Errorf("the socket of a server without a lease answers %d", got)
	}
	// Another server ends this one, and revokes a key without this server's feed being told.
	rival, err := pgx.Connect(t.Context(), direct.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rival.Close(context.Background()) }()
	for _, statement := range []string{
		`UPDATE nodes SET ended = TRUE, serving = FALSE`,
		`UPDATE api_keys SET revoked_at = 1 WHERE user_id = (SELECT id FROM users WHERE email = 'owner@one.test')`,
	} {
		if _, err := rival.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	if got := network(keys.Admin); got != 503 {
		t.Errorf("served without a lease: %d", got)
	}
	proxy.cut(false)
	eventually(t, 10*time.Second, "served again", func() bool { return network(keys.Admin) == 404 })
	if got := network(keys.Owner); got != 401 {
		t.Errorf("a key that was revoked meanwhile: %d", got)
	}
	if got := i.member.Life().Epoch; got != 2 {
		t.Errorf("it serves in life %d", got)
	}
}

// What one server changes is in force on the other when it answers.
func TestTwoServersServeOneDatabase(t *testing.T) {
	database := dbtest.Postgres(t)
	one := Storage{DataDir: short(t) + "/data", DatabaseURL: database}
	if err := one.complete(); err != nil {
		t.Fatal(err)
	}
	two := Storage{DataDir: short(t) + "/data", DatabaseURL: database, RootKeyFile: one.RootKeyFile}
	if err := two.complete(); err != nil {
		t.Fatal(err)
	}
	a := openInstance(t, one)
	ws, _ := addCallers(t, a)
	b := openInstance(t, two)
	for round := range 20 {
		key, text, err := a.domains.workspaces.CreateKey(t.Context(), ws, tenant.Operator, "owner@one.test", "one")
		if err != nil {
			t.Fatal(err)
		}
		for name, i := range map[string]*instance{"the first": a, "the second": b} {
			if got := statusOf(t, i.routers.public, http.MethodGet, "/v1/setup/status", text.Reveal()); got != 200 {
				t.Errorf("%s answers a new key %d", name, got)
			}
		}
		by, other := a, b
		if round%2 == 0 {
			by, other = b, a
		}
		if _, err := by.domains.workspaces.RevokeKey(t.Context(), ws, tenant.Operator, key.ID, ""); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, other.routers.public, http.MethodGet, "/v1/setup/status", text.Reveal()); got != 401 {
			t.Fatalf("the other answers a revoked key %d", got)
		}
	}
	b.close()
	if _, _, err := a.domains.workspaces.CreateKey(t.Context(), ws, tenant.Operator, "owner@one.test", "one"); err != nil {
		t.Errorf("after the other has stopped: %v", err)
	}
}

// A proxy stops passing packets on the connections it has, as a lost NAT entry does, and passes new ones. Nothing is
// reset and nothing answers; the server must notice by itself and be back soon.
func TestDrillSilentlyDeadConnectionsAreGivenUp(t *testing.T) {
	direct := dbtest.Postgres(t)
	s, proxy := through(t, direct)
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
	began := time.Now()
	eventually(t, 25*time.Second, "served again", func() bool { return ask() == 200 })
	t.Logf("served again %v after the connections went silent", time.Since(began))
	if err := i.gate(); err != nil {
		t.Error(err)
	}
}

type blackHole struct {
	address string
	mu      sync.Mutex
	open    []*atomic.Bool
	refuses bool
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
			b.mu.Lock()
			refuses := b.refuses
			b.mu.Unlock()
			server, err := net.Dial("tcp", target)
			if err == nil && refuses {
				_ = server.Close()
			}
			if err != nil || refuses {
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

// cut silences the connections that there are, and refuses new ones, or lets them pass again.
func (b *blackHole) cut(cut bool) {
	b.mu.Lock()
	b.refuses = cut
	b.mu.Unlock()
	if cut {
		b.swallow()
	}
}
