package app

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/live"
	"sovereign/internal/store/api"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

// eachInstance runs test with an instance on each storage.
func eachInstance(t *testing.T, test func(t *testing.T, i *instance)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) {
		s := Storage{DataDir: short(t) + "/data", DatabaseURL: url}
		if err := s.complete(); err != nil {
			t.Fatal(err)
		}
		test(t, openInstance(t, s))
	})
}

// short is a temporary folder whose name leaves room for the admin socket's.
func short(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "app")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func openInstance(t *testing.T, s Storage) *instance {
	t.Helper()
	i, err := open(t.Context(), defaults(s), mayCreate, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	i.start()
	t.Cleanup(i.close)
	return i
}

// addCallers fills a workspace with a caller of every kind.
func addCallers(t *testing.T, i *instance) (tenant.ID, apitest.Keys) {
	t.Helper()
	ctx := t.Context()
	made, err := i.bootstrap(ctx, tenant.Operator, NewWorkspace{Workspace: "one", Email: "owner@one.test", Balance: 25 * money.Dollar}, func(Bootstrapped) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ws := made.WorkspaceID
	mint := func(name string, role tenant.Role) (workspace.Key, string) {
		email := name + "@one.test"
		if _, err := i.domains.workspaces.AddMember(ctx, ws, tenant.Operator, email, role); err != nil {
			t.Fatal(err)
		}
		key, text, err := i.domains.workspaces.CreateKey(ctx, ws, tenant.Operator, email, name)
		if err != nil {
			t.Fatal(err)
		}
		return key, text.Reveal()
	}
	k := apitest.Keys{Owner: made.APIKey}
	_, k.Admin = mint("admin", tenant.Admin)
	_, k.Member = mint("member", tenant.Member)
	var revoked workspace.Key
	revoked, k.Revoked = mint("revoked", tenant.Admin)
	if _, err := i.domains.workspaces.RevokeKey(ctx, ws, tenant.Operator, revoked.ID, ""); err != nil {
		t.Fatal(err)
	}
	_, k.Departed = mint("departed", tenant.Owner)
	if _, err := i.domains.workspaces.RemoveMember(ctx, ws, tenant.Operator, "departed@one.test", ""); err != nil {
		t.Fatal(err)
	}
	other, err := i.bootstrap(ctx, tenant.Operator, NewWorkspace{Workspace: "other", Email: "owner@other.test"}, func(Bootstrapped) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	k.Other = other.APIKey
	stranger, _, _ := apikey.New()
	k.Stranger = stranger.Reveal()
	digest, _ := apikey.Parse(k.Owner)
	k.Digest = hex.EncodeToString(digest[:])
	return ws, k
}

func TestSerialAccessMatrixOfEveryRegisteredRoute(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		ws, keys := addCallers(t, i)
		other, err := i.domains.find(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		for _, logged := range []tenant.ID{ws, other} { // or everything about logs is refused for that
			i.state.settings.Put(logged, live.Settings{LogDays: 7})
		}
		server := httptest.NewServer(i.routers.public)
		defer server.Close()
		for key, mine := range map[string]bool{keys.Owner: true, keys.Other: false} {
			recorder := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/setup/status", http.NoBody)
			request.Header.Set("Authorization", "Bearer "+key)
			i.routers.public.ServeHTTP(recorder, request)
			if strings.Contains(recorder.Body.String(), string(ws)) != mine {
				t.Errorf("a key sees another's workspace: %s", recorder.Body)
			}
		}
		var network, socket []api.Route
		for _, r := range i.routers.routes {
			if r.Permission == api.Operator {
				socket = append(socket, r)
			} else {
				network = append(network, r)
			}
		}
		apitest.Matrix(t, server.URL, network, keys)
		shared := func(r api.Route) bool { // a path that keys have for themselves, and the operator for any workspace
			return slices.ContainsFunc(network, func(n api.Route) bool { return n.Method == r.Method && n.Path == r.Path })
		}
		for _, r := range socket {
			paths := []string{r.Pattern(), "/v1" + r.Pattern()}
			if !shared(r) {
				paths = append(paths, "/v1"+r.Path, "/api/v1"+r.Path)
			}
			for _, path := range paths {
				if got := statusOf(t, i.routers.public, r.Method, strings.NewReplacer("{", "", "}", "").Replace(path), keys.Owner); got != http.StatusNotFound {
					t.Errorf("%s %s answers an owner %d on the network", r.Method, path, got)
				}
			}
		}
	})
}

// With the database gone, authentication still tells a live key from every other: it never asked the database.
func TestAuthenticationNeedsNoDatabase(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		_, keys := addCallers(t, i)
		server := httptest.NewServer(i.routers.public)
		defer server.Close()
		if err := i.storage.db.Close(); err != nil {
			t.Fatal(err)
		}
		for _, caller := range apitest.Callers(keys) {
			status, _ := caller.Want(api.Reader)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/no-such-route", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Header["Authorization"] = caller.Header
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if status == 0 {
				status = http.StatusNotFound // it was let in, and found no such route
			}
			if response.StatusCode != status {
				t.Errorf("%s: %d, want %d", caller.Name, response.StatusCode, status)
			}
		}
	})
}

// Requests run without pause while keys are revoked and users demoted and removed at random moments, over real
// connections. None that started after the change had answered may pass as before it.
func TestNothingStartedAfterARevokeOrDemotionAnsweredIsAccepted(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		ctx := t.Context()
		ws, _ := addCallers(t, i)
		public, operators := httptest.NewServer(i.routers.public), httptest.NewServer(i.routers.operators)
		defer public.Close()
		defer operators.Close()
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
		call := func(method, address, key string, body io.Reader) (int, string) {
			request, err := http.NewRequestWithContext(ctx, method, address, body)
			if err != nil {
				t.Error(err)
				return 0, ""
			}
			if key != "" {
				request.Header.Set("Authorization", "Bearer "+key)
			}
			request.Header.Set("Accept", "text/plain")
			response, err := client.Do(request)
			if err != nil {
				t.Error(err)
				return 0, ""
			}
			defer func() { _ = response.Body.Close() }()
			text, _ := io.ReadAll(response.Body)
			return response.StatusCode, string(text)
		}
		const rounds, readers = 100, 6
		accepted, refused := 0, 0
		for round := range rounds {
			email := fmt.Sprintf("user%d@one.test", round)
			if _, err := i.domains.workspaces.AddMember(ctx, ws, tenant.Operator, email, tenant.Admin); err != nil {
				t.Fatal(err)
			}
			minted, text, err := i.domains.workspaces.CreateKey(ctx, ws, tenant.Operator, email, "x")
			if err != nil {
				t.Fatal(err)
			}
			var answered atomic.Bool
			var after, before atomic.Int64
			var group sync.WaitGroup
			changes := []struct {
				method, path, body string
				refused            func(status int, text string) bool
			}{
				{"POST", "/admin/keys/" + string(minted.ID) + "/revocation?workspace=one", "", func(status int, _ string) bool { return status == 401 }},
				{"DELETE", "/admin/members?workspace=one&email=" + email, "", func(status int, _ string) bool { return status == 403 }},
				{"PUT", "/admin/members", `{"workspace":"one","email":"` + email + `","role":"member"}`, func(status int, text string) bool {
					return status == 200 && strings.Contains(text, "role=member")
				}},
			}
			change := changes[round%len(changes)]
			for range readers {
				group.Go(func() {
					for range 400 {
						late := answered.Load()
						status, text := call("GET", public.URL+"/v1/setup/status", text.Reveal(), nil)
						no := change.refused(status, text)
						if late {
							after.Add(1)
							if !no {
								t.Errorf("round %d: accepted after %s %s had answered: %d %s", round, change.method, change.path, status, text)
							}
						} else if !no {
							before.Add(1)
						}
						if after.Load() > 3*readers {
							return
						}
					}
				})
			}
			group.Go(func() {
				time.Sleep(rand.N(4 * time.Millisecond))
				var body io.Reader
				if change.body != "" {
					body = strings.NewReader(change.body)
				}
				if status, text := call(change.method, operators.URL+change.path, "", body); status >= 300 {
					t.Errorf("%s %s: %d %s", change.method, change.path, status, text)
				}
				answered.Store(true)
			})
			group.Wait()
			accepted += int(before.Load())
			refused += int(after.Load())
		}
		t.Logf("%d changes; %d requests accepted before, %d refused after", rounds, accepted, refused)
		if accepted == 0 || refused < rounds {
			t.Errorf("the load did not straddle the changes: %d before, %d after", accepted, refused)
		}
	})
}

func TestWrongMissingAndNewerAreRefusedAndChangeNothing(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		ctx := t.Context()
		addCallers(t, i)
		s := i.storage.config
		i.close()
		i.background.stop = nil // closed by hand; the clean-up must not do it again
		before := rows(t, s)
		other := s
		other.RootKeyFile = t.TempDir() + "/other.key"
		if _, err := open(ctx, defaults(other), mayCreate, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("missing root key: %v", err)
		}
		if _, err := vault.CreateRoot(other.RootKeyFile); err != nil {
			t.Fatal(err)
		}
		if _, err := open(ctx, defaults(other), mayCreate, slog.New(slog.DiscardHandler), nil); !errors.Is(err, vault.ErrWrongRoot) {
			t.Errorf("wrong root key: %v", err)
		}
		if after := rows(t, s); after != before {
			t.Errorf("a refused start changed the data:\n%s\n%s", before, after)
		}
		d := dbtest.Open(t, s.DataDir, s.DatabaseURL)
		if _, err := db.Exec(ctx, d.Across("test"), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)`); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if after := rows(t, s); after != before {
				t.Errorf("a refused start changed a newer database:\n%s\n%s", before, after)
			}
		}()
		if _, err := open(ctx, defaults(s), mayCreate, slog.New(slog.DiscardHandler), nil); !errors.Is(err, db.ErrNewer) {
			t.Errorf("newer database: %v", err)
		}
	})
}

// rows is everything in the database, as text.
func rows(t *testing.T, s Storage) string {
	t.Helper()
	d, err := db.Open(t.Context(), s.DataDir, s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	all := d.Across("test")
	tables, err := db.Tables(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, table := range tables {
		for row, err := range db.Dump(t.Context(), all, table) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out, table.Name, row)
		}
	}
	return out.String()
}

// A first start whose output cannot be written has not happened: a key in force is a key that was shown.
func TestFirstStartShowsTheKeyBeforeItIsInForce(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		broken := writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })
		if err := i.firstStart(t.Context(), "http://x", broken); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("want the writing's error, got %v", err)
		}
		if i.state.directory.Keys() != 0 {
			t.Error("a key is in force that nobody has seen")
		}
		var out strings.Builder
		if err := i.firstStart(t.Context(), "http://x", &out); err != nil || !strings.Contains(out.String(), apikey.Prefix) || i.state.directory.Keys() != 1 {
			t.Fatalf("%v %s", err, out.String())
		}
		out.Reset()
		if err := i.firstStart(t.Context(), "http://x", &out); err != nil || out.Len() > 0 {
			t.Errorf("a second start: %v %s", err, out.String())
		}
	})
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// A database that is away for a while: no request passes unauthenticated, nothing half happens, and service is back
// within seconds of the database, without a restart.
func TestDrillPostgresOutageIsSurvived(t *testing.T) {
	pg, err := dbtest.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pg.Remove() }()
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	s := Storage{DataDir: short(t) + "/data", DatabaseURL: secret.New(pg.URL())}
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	i := openInstance(t, s)
	_, keys := addCallers(t, i)
	ask := func(key string) int { return statusOf(t, i.routers.public, http.MethodGet, "/v1/setup/status", key) }
	if got := ask(keys.Owner); got != 200 {
		t.Fatalf("before: %d", got)
	}
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got := ask(keys.Owner); got != 503 {
			t.Errorf("a live key without the database: %d", got)
		}
		if got := ask(keys.Revoked); got != 401 && got != 503 {
			t.Errorf("a revoked key without the database: %d", got)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := i.domains.workspaces.List(t.Context(), 1, 0); err == nil {
		t.Error("a reading succeeded without a database")
	}
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	limit := 2 * time.Minute
	if os.Getenv("SOVEREIGN_DRILLS") == "full" {
		limit = 5 * time.Second // as promised, on a machine that is not busy
	}
	back := time.Now()
	for ask(keys.Owner) != 200 {
		if time.Since(back) > limit {
			stacks := make([]byte, 1<<20)
			t.Fatalf("not back within %v of the database; what waits:\n%s", limit, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("serving again %v after the database", time.Since(back))
	if got := ask(keys.Revoked); got != 401 {
		t.Errorf("a revoked key afterwards: %d", got)
	}
}

func TestAStartSweepsWhatADeadBuildLeft(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) {
		s := Storage{DataDir: short(t) + "/data", DatabaseURL: url}
		if err := s.complete(); err != nil {
			t.Fatal(err)
		}
		i, err := open(t.Context(), defaults(s), mayCreate, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), i.storage.db.In("ws_1"), `INSERT INTO dataset_loose (workspace_id, dataset_id, since) VALUES ($1, 'ds_1', 1)`); err != nil {
			t.Fatal(err)
		}
		i.storage.keep()
		i.close()
		i = openInstance(t, s)
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			left, err := db.One[int](t.Context(), i.storage.db.Across("test"), `SELECT COUNT(*) FROM dataset_loose`)
			if err != nil {
				t.Fatal(err)
			}
			if left == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("it is still there")
			}
		}
	})
}
