package e2e

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

// load tops the wallet up and makes keys until ended is called, which returns how many cents were answered. minted
// returns the keys that were answered so far.
func load(t *testing.T, p instance) (minted func() []string, ended func() (cents int64)) {
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
	eachEngine(t, func(t *testing.T, p instance) {
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
		stdout, stderr, code := p.admin(t, "backup", file)
		fails(t, stdout, stderr, code, "exists already")
		p.mustAdmin(t, nil, "check-backup", file)

		dbtest.EachURL(t, func(t *testing.T, _ string, url secret.Text) {
			elsewhere := newInstance(t, url)
			copyFile(t, p.root, elsewhere.root)
			elsewhere.mustAdmin(t, nil, "restore", file)
			restored := elsewhere.serve(t)
			if keyText.MatchString(restored.out.String()) {
				t.Error("a restored server bootstraps")
			}
			elsewhere.verifyLedger(t)
			elsewhere.verifyTrail(t)
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

			stranger := newInstance(t, secret.Text{})
			stdout, stderr, code = stranger.admin(t, "restore", file)
			fails(t, stdout, stderr, code, "a restore needs the root key")
			newRoot := newInstance(t, secret.Text{})
			newRoot.serve(t).stop(t)
			stranger.root = newRoot.root
			stdout, stderr, code = stranger.admin(t, "restore", file)
			fails(t, stdout, stderr, code, "it needs another root key")
			if _, err := os.Stat(stranger.data); err == nil {
				t.Errorf("a refused restore left something behind:\n%s", everything(t, stranger))
			}
			stranger.root = elsewhere.root
			stranger.mustAdmin(t, nil, "restore", file)
		})
	})
}

// The server is killed while it sends a backup, and in every second round the sender while it writes one: the file is
// complete or absent. The kills are spread over a little more than the time that a backup takes.
func TestDrillKillDuringBackup(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
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
				elsewhere := newInstance(t, secret.Text{})
				copyFile(t, p.root, elsewhere.root)
				elsewhere.mustAdmin(t, nil, "restore", file)
				elsewhere.verifyLedger(t)
			} else {
				cut++
			}
			if i%2 == 0 {
				server = p.serve(t)
			}
			p.verifyLedger(t)
		}
		t.Logf("%d backups were whole, %d were cut off and left no file", whole, cut)
		if whole == 0 || cut == 0 {
			t.Errorf("the kills did not straddle the backup: %d whole, %d cut", whole, cut)
		}
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
