package e2e

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
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
			p := newInstance(t, url)
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
			p.verifyLedger(t)
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
	eachEngine(t, func(t *testing.T, p instance) {
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

// The root key is replaced under load, and the server is killed at a random moment of it: the data always opens.
func TestDrillKillDuringRootKeyRotation(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
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
