package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

// The first start is killed at a random moment: while the root key is made, during migrations, while the first
// workspace is made. The next start is clean, and whatever key is in force has been printed.
func TestDrillKillDuringTheFirstStart(t *testing.T) {
	t.Parallel()
	dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) {
		finished := 0
		for i := range drills(12, 150) {
			p := newPlace(t, url)
			if !url.Empty() {
				p.url = dbtest.Postgres(t)
			}
			span := 60 * time.Millisecond
			if !url.Empty() {
				span = 250 * time.Millisecond
			}
			first := p.start(t)
			time.Sleep(rand.N(span))
			first.kill()
			second := p.serve(t)
			printed := keyText.FindAllString(first.out.String(), 1)
			inForce := len(printed) == 1 && status(t, second.address(), printed[0]) == 200
			if inForce {
				finished++
				if keyText.MatchString(second.out.String()) {
					t.Errorf("drill %d: both starts made a workspace", i)
				}
			} else {
				printed = append(printed, second.key())
				inForce = status(t, second.address(), second.key()) == 200
			}
			var keys struct{ Data []struct{ ID string } }
			p.mustAdmin(t, &keys, "key", "list", "--workspace", "default", "--json")
			if !inForce || len(keys.Data) != 1 {
				t.Errorf("drill %d: %d printed, in force: %v, %d stored", i, len(printed), inForce, len(keys.Data))
			}
			p.proves(t)
			if second.stop(t) != 0 {
				t.Errorf("drill %d: the second start does not end well:\n%s", i, second.log)
			}
		}
		t.Logf("of %d first starts, %d had finished before the kill", drills(12, 150), finished)
	})
}

// Keys are minted without pause and the server is killed: every key that was answered works after the restart, and
// none works twice as another's.
func TestDrillKillDuringKeyCreation(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		server := p.serve(t)
		answered := map[string]bool{server.key(): true}
		attempts := 1
		for range drills(5, 60) {
			var mu sync.Mutex
			var group sync.WaitGroup
			stop := make(chan struct{})
			for range 4 {
				group.Go(func() {
					client := p.socket()
					for {
						select {
						case <-stop:
							return
						default:
						}
						mu.Lock()
						attempts++
						mu.Unlock()
						code, text, err := post(client, "/admin/keys", `{"workspace":"default","email":"owner@localhost"}`)
						if err != nil {
							return
						}
						if code != http.StatusCreated {
							t.Errorf("%d %s", code, text)
							return
						}
						mu.Lock()
						answered[keyText.FindString(text)] = true
						mu.Unlock()
					}
				})
			}
			time.Sleep(5*time.Millisecond + rand.N(80*time.Millisecond))
			server.kill()
			close(stop)
			group.Wait()
			server = p.serve(t)
		}
		for key := range answered {
			if got := status(t, server.address(), key); got != 200 {
				t.Errorf("a key that was answered: %d", got)
			}
		}
		var keys struct {
			Data []struct{ ID string }
		}
		p.mustAdmin(t, &keys, "key", "list", "--workspace", "default", "--limit", "1000", "--json")
		if len(keys.Data) < min(1000, len(answered)) || len(keys.Data) > attempts {
			t.Errorf("%d keys stored, %d answered, %d asked for", len(keys.Data), len(answered), attempts)
		}
		t.Logf("%d keys answered, all work", len(answered))
	})
}

// load tops the wallet up and mints keys until it is ended, which tells how many cents were answered; minted are the
// keys that were answered so far.
func load(t *testing.T, p place) (minted func() []string, ended func() (cents int64)) {
	t.Helper()
	var cents atomic.Int64
	var mu sync.Mutex
	var keys []string
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for worker := range 3 {
		group.Go(func() {
			client := p.socket()
			for ctx.Err() == nil {
				if worker == 0 {
					if code, text, err := post(client, "/admin/keys", `{"workspace":"default","email":"owner@localhost"}`); err == nil && code == 201 {
						mu.Lock()
						keys = append(keys, keyText.FindString(text))
						mu.Unlock()
					}
					continue
				}
				if code, _, err := post(client, "/admin/wallet/topups", `{"workspace":"default","amount_usd":0.01}`); err == nil && code == 201 {
					cents.Add(1)
				}
			}
		})
	}
	minted = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(keys)
	}
	return minted, func() int64 {
		cancel()
		group.Wait()
		return cents.Load()
	}
}

// A backup is taken while money moves and keys are minted, and restored elsewhere, on the same engine and on the
// other: it proves, it holds all that was answered before it began, and it opens with its root key alone.
func TestBackupUnderLoadRestoresElsewhereAndProves(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		server := p.serve(t)
		first := server.key()
		minted, ended := load(t, p)
		eventually(t, "keys are made", func() bool { return len(minted()) > 0 })
		var floor struct {
			Balance json.Number `json:"balance_usd"`
		}
		p.mustAdmin(t, &floor, "wallet", "show", "--workspace", "default", "--json")
		before := minted()
		file := filepath.Join(t.TempDir(), "backup")
		p.mustAdmin(t, nil, "backup", file)
		eventually(t, "the load goes on", func() bool { return len(minted()) > len(before) })
		cents := ended()
		if cents == 0 {
			t.Fatal("no top-up was answered")
		}
		if left, _ := filepath.Glob(file + "*"); len(left) != 1 {
			t.Errorf("files %v", left)
		}

		dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) {
			elsewhere := newPlace(t, url)
			copyFile(t, p.root, elsewhere.root)
			elsewhere.mustAdmin(t, nil, "restore", file)
			restored := elsewhere.serve(t)
			if keyText.MatchString(restored.out.String()) {
				t.Error("a restored server bootstraps")
			}
			elsewhere.proves(t)
			for _, key := range append([]string{first}, before...) {
				if got := status(t, restored.address(), key); got != 200 {
					t.Errorf("a key that was answered before the backup: %d", got)
				}
			}
			var balance struct {
				Balance json.Number `json:"balance_usd"`
			}
			elsewhere.mustAdmin(t, &balance, "wallet", "show", "--workspace", "default", "--json")
			was, _ := floor.Balance.Float64()
			is, _ := balance.Balance.Float64()
			if is < was || is > 25+float64(cents)/100+0.001 {
				t.Errorf("balance %v is outside %v … %v", is, was, 25+float64(cents)/100)
			}
			stdout, stderr, code := elsewhere.admin(t, "restore", file)
			fails(t, stdout, stderr, code, "another sovereign process")
			restored.stop(t)
			stdout, stderr, code = elsewhere.admin(t, "restore", file)
			fails(t, stdout, stderr, code, "the database is not empty")

			stranger := newPlace(t, secret.Text{})
			stdout, stderr, code = stranger.admin(t, "restore", file)
			fails(t, stdout, stderr, code, "a restore needs the root key")
			newRoot := newPlace(t, secret.Text{})
			newRoot.serve(t).stop(t)
			stranger.root = newRoot.root
			stdout, stderr, code = stranger.admin(t, "restore", file)
			fails(t, stdout, stderr, code, "the root key does not open this database")
			if _, err := os.Stat(stranger.data); err == nil {
				t.Errorf("a refused restore left something behind:\n%s", everything(t, stranger))
			}
			stranger.root = elsewhere.root
			stranger.mustAdmin(t, nil, "restore", file)
		})
	})
}

// The server is killed while it sends a backup, and in every second round the sender while it writes one: the file is
// whole or not there. The kills are spread over a little more than the time that a backup takes.
func TestDrillKillDuringBackup(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		server := p.serve(t)
		seed := p.socket()
		for range 60 {
			if code, text, err := post(seed, "/admin/wallet/topups", `{"workspace":"default","amount_usd":0.01}`); err != nil || code != 201 {
				t.Fatal(code, text, err)
			}
		}
		began := time.Now()
		p.mustAdmin(t, nil, "backup", filepath.Join(t.TempDir(), "backup"))
		takes := time.Since(began)
		whole, cut := 0, 0
		rounds := drills(10, 100)
		for i := range rounds {
			file := filepath.Join(t.TempDir(), "backup")
			sender := exec.Command(binary, append(append([]string{"admin"}, p.flags()...), "backup", file)...)
			sent := startChild(t, sender)
			switch i {
			case 1: // killed before it can write anything
			case rounds - 2: // killed when it is done
				<-sent
			default:
				time.Sleep(2*takes*time.Duration(i)/time.Duration(rounds) + rand.N(takes/10))
			}
			if i%2 == 0 {
				server.kill()
			} else {
				_ = sender.Process.Kill()
			}
			<-sent
			_, err := os.Stat(file)
			if succeeded := sender.ProcessState.Success(); succeeded && err != nil {
				t.Errorf("drill %d: it succeeded, and there is no file", i)
			}
			if err == nil {
				whole++
				elsewhere := newPlace(t, secret.Text{})
				copyFile(t, p.root, elsewhere.root)
				elsewhere.mustAdmin(t, nil, "restore", file)
				elsewhere.proves(t)
			} else {
				cut++
			}
			if i%2 == 0 {
				server = p.serve(t)
			}
			p.proves(t)
		}
		t.Logf("%d backups were whole, %d were cut off and left no file", whole, cut)
		if whole == 0 || cut == 0 {
			t.Errorf("the kills did not straddle the backup: %d whole, %d cut", whole, cut)
		}
	})
}

// The root key is replaced under load, and the server is killed at a random moment of it: the data always opens.
func TestDrillKillDuringRootKeyRotation(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		server := p.serve(t)
		key := server.key()
		original, err := os.ReadFile(p.root)
		if err != nil {
			t.Fatal(err)
		}
		for range drills(8, 120) {
			client := p.socket()
			done := make(chan struct{})
			go func() { defer close(done); _, _, _ = post(client, "/admin/root-key/rotation", "") }()
			time.Sleep(rand.N(6 * time.Millisecond))
			server.kill()
			<-done
			server = p.serve(t)
			if got := status(t, server.address(), key); got != 200 {
				t.Fatalf("after a rotation: %d", got)
			}
		}
		var rotated struct{ From, To string }
		p.mustAdmin(t, &rotated, "rotate-root-key", "--json")
		if rotated.From == rotated.To {
			t.Errorf("%+v", rotated)
		}
		server.stop(t)
		now, err := os.ReadFile(p.root)
		if err != nil || bytes.Equal(now, original) {
			t.Fatal("the root key file did not change", err)
		}
		if err := os.WriteFile(p.root, original, 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off"}, p.flags()...)
		stdout, stderr, code := run(t, args...)
		fails(t, stdout, stderr, code, "the root key does not open this database")
		if err := os.WriteFile(p.root, now, 0o600); err != nil {
			t.Fatal(err)
		}
		p.serve(t).stop(t)
	})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An admin command without a server takes the same lock, does the same work, and the next server finds it done.
func TestAdminWorksWithoutAServer(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p place) {
		if _, stderr, code := p.admin(t, "key", "list", "--workspace", "x"); p.url.Empty() && (code != 1 || !strings.Contains(stderr, "there is no data folder")) {
			t.Errorf("a mistyped folder must not become an installation: %d %s", code, stderr)
		}
		p.serve(t).stop(t)
		var made struct {
			WorkspaceID string `json:"workspace_id"`
			UserID      string `json:"user_id"`
			APIKey      string `json:"api_key"`
		}
		p.mustAdmin(t, &made, "bootstrap", "--workspace", "offline", "--email", "ann@x.test", "--balance-usd", "1.5", "--json")
		var minted struct {
			ID     string
			APIKey string `json:"api_key"`
		}
		p.mustAdmin(t, nil, "member", "add", "--workspace", "offline", "--email", "bob@x.test", "--role", "admin", "--json")
		p.mustAdmin(t, &minted, "key", "create", "--workspace", made.WorkspaceID, "--email", "bob@x.test", "--json")
		var balance map[string]json.Number
		p.mustAdmin(t, &balance, "wallet", "show", "--workspace", "offline", "--json")
		if fmt.Sprint(balance) != "map[balance_usd:1.5 held_usd:0 spent_usd:0]" {
			t.Errorf("%v", balance)
		}
		server := p.serve(t)
		for _, key := range []string{made.APIKey, minted.APIKey} {
			if got := status(t, server.address(), key); got != 200 {
				t.Errorf("a key minted without a server: %d", got)
			}
		}
		p.mustAdmin(t, nil, "key", "revoke", "--workspace", "offline", "--id", minted.ID, "--json")
		if got := status(t, server.address(), minted.APIKey); got != 401 {
			t.Errorf("after revoke: %d", got)
		}
		p.mustAdmin(t, nil, "member", "remove", "--workspace", "offline", "--email", "bob@x.test", "--json")
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		var trail struct {
			Data []struct {
				Action string
				Actor  struct {
					Kind   string
					UserID string `json:"user_id"`
				}
			}
		}
		p.mustAdmin(t, &trail, "audit", "--workspace", "offline", "--json")
		for _, entry := range trail.Data { // over the socket and without a server alike
			if entry.Actor.Kind != "operator" || entry.Actor.UserID != "unix:"+me.Username {
				t.Errorf("%s is said to be by %+v", entry.Action, entry.Actor)
			}
		}
		if len(trail.Data) < 6 {
			t.Errorf("%d entries", len(trail.Data))
		}
		stdout, stderr, code := p.admin(t, "bootstrap", "--workspace", "offline", "--email", "ann@x.test")
		fails(t, stdout, stderr, code, "exists already")
	})
}

// The journal holds money: no start that fails, and no restore that is refused, takes it away.
func TestAJournalWhoseDatabaseIsMissingIsKept(t *testing.T) {
	t.Parallel()
	p := newPlace(t, secret.Text{})
	s := p.serve(t)
	s.caller().must(t, chat("sim/chat", "charged", `"max_tokens":5`))
	p.mustAdmin(t, nil, "backup", filepath.Dir(p.data)+"/backup")
	spent := s.wallet(t, "default").Spent
	if a := s.caller().must(t, chat("sim/chat", "charged once more", `"max_tokens":5`)); a.status != 200 {
		t.Fatal(a.status)
	}
	s.kill()
	core := filepath.Join(p.data, "core.db")
	for _, end := range []string{"", "-wal", "-shm"} {
		_ = os.Rename(core+end, filepath.Dir(p.data)+"/aside"+end)
	}
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off", "--bootstrap"}, {"admin", "restore", filepath.Dir(p.data) + "/backup"}, {"admin", "bootstrap", "--workspace", "x", "--email", "x@x.test"}} {
		all := append(append([]string{args[0]}, p.flags()...), args[1:]...)
		if _, stderr, code := run(t, all...); code != 1 || !strings.Contains(stderr, "money journal") {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		_ = os.Rename(filepath.Dir(p.data)+"/aside"+end, core+end)
	}
	p.serve(t)
	if after := p.wallet(t, "default"); after.Spent <= spent || after.Held != 0 {
		t.Errorf("the second charge is lost: %+v", after)
	}
	p.proves(t)
}
