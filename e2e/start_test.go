package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

var curlLine = regexp.MustCompile(`(?m)^ *curl .*$`)

func TestMakeRunAnswersThePrintedCurlLineAndASecondStartKeepsTheData(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	start := func() (*exec.Cmd, *tail, *tail, chan struct{}) {
		cmd := exec.Command("make", "-C", "..", "run", "ARGS=--listen 127.0.0.1:0 --operations-listen off "+strings.Join(p.flags(), " "))
		out, log := newTail(), newTail()
		cmd.Stdout, cmd.Stderr = out, log
		done := startGroup(t, cmd)
		if log.findWithin(serving, done, 10*limit) == "" {
			t.Fatalf("make run does not serve: %s %s", out, log)
		}
		return cmd, out, log, done
	}
	cmd, out, _, done := start()
	line := out.find(curlLine, done)
	answer, err := exec.Command("sh", "-c", line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var chatted struct{ Object, Model string }
	if err := json.Unmarshal(answer, &chatted); err != nil || chatted.Object != "chat.completion" || chatted.Model != "sim/chat" {
		t.Fatalf("%s answered %s %v", line, answer, err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-done

	_, again, log, _ := start()
	if keyText.MatchString(again.String()) {
		t.Errorf("a second start prints a key: %s", again)
	}
	key := keyText.FindString(out.String())
	if got := status(t, serving.FindStringSubmatch(log.String())[1], key); got != 200 {
		t.Errorf("the first start's key: %d", got)
	}
	if b := p.wallet(t, "default"); b.Spent == 0 || b.Balance+b.Spent != 25*money.Dollar || b.Held != 0 {
		t.Errorf("%+v", b)
	}
	p.verifyLedger(t)
}

func TestBadStartsAreOneLineAndChangeNothing(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	config := func(t *testing.T, text string) string {
		path := filepath.Join(t.TempDir(), "sovereign.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cases := map[string]struct {
		args func(t *testing.T, p instance) []string
		want string
	}{
		"port taken":            {func(*testing.T, instance) []string { return []string{"--listen", taken.Addr().String()} }, "is taken already"},
		"operations port taken": {func(*testing.T, instance) []string { return []string{"--operations-listen", taken.Addr().String()} }, "is taken already"},
		"unknown flag":          {func(*testing.T, instance) []string { return []string{"--lisen", "x"} }, "unknown flag --lisen"},
		"unknown config key":    {func(t *testing.T, _ instance) []string { return []string{"--config", config(t, "a: 1\n")} }, "sovereign.yaml:1: unknown key a"},
		"wrong config value": {func(t *testing.T, _ instance) []string {
			return []string{"--config", config(t, "\nlimits: {body: big}\n")}
		}, "sovereign.yaml:2: limits.body"},
		"no config file":    {func(*testing.T, instance) []string { return []string{"--config", "/nowhere/sovereign.yaml"} }, "no such file"},
		"data not writable": {func(_ *testing.T, p instance) []string { return []string{"--data-dir", p.root + "/data"} }, "is not writable"},
		"data folder too long": {func(_ *testing.T, p instance) []string {
			return []string{"--data-dir", p.data + strings.Repeat("/long", 30)}
		}, "too long"},
		"postgres unreachable": {func(*testing.T, instance) []string {
			return []string{"--database-url", "postgres://u:canary@127.0.0.1:1/x"}
		}, "PostgreSQL at 127.0.0.1:1 cannot be reached"},
		"no PostgreSQL URL": {func(*testing.T, instance) []string { return []string{"--database-url", "mysql://u:canary@x/y"} }, "database_url is not a PostgreSQL URL"},
		"no root key file":  {func(_ *testing.T, p instance) []string { return []string{"--root-key-file", p.data + "/core.db"} }, "is not a root key file"},
		"missing root key":  {func(_ *testing.T, p instance) []string { return []string{"--root-key-file", p.root + ".other"} }, "is missing"},
		"missing certificate": {func(*testing.T, instance) []string {
			return []string{"--tls-cert", "/nowhere", "--tls-key", "/nowhere"}
		}, "tls: open /nowhere"},
	}
	p := newInstance(t, secret.Text{})
	p.serve(t).stop(t)
	before := everything(t, p)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off"}, p.flags()...)
			stdout, stderr, code := run(t, append(args, c.args(t, p)...)...)
			fails(t, stdout, stderr, code, c.want)
			if after := everything(t, p); after != before {
				t.Errorf("a start that failed changed the data:\n%s\n%s", before, after)
			}
		})
	}
}

// fails checks for one error line, exit code 1, and no secret.
func fails(t *testing.T, stdout, stderr string, code int, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if code != 1 || stdout != "" || len(lines) != 1 || !strings.HasPrefix(lines[0], "sovereign: ") || !strings.Contains(lines[0], want) || strings.Contains(stderr, "canary") {
		t.Errorf("want one line with %q and exit 1, got exit %d:\n%s%s", want, code, stdout, stderr)
	}
}

// everything is the data folder and the root key, as one text.
func everything(t *testing.T, p instance) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(filepath.Dir(p.data), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Base(path) == "lock" || strings.HasSuffix(path, "-shm") || strings.HasSuffix(path, "-wal") {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&out, "%s %x\n", path, sha256.Sum256(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestASecondServerOnTheSameDataFolderIsRefused(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		first := p.serve(t)
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off"}, p.flags()...)
		stdout, stderr, code := run(t, args...)
		fails(t, stdout, stderr, code, "another sovereign process is using this data")
		if got := status(t, first.address(), first.key()); got != 200 {
			t.Errorf("the first server: %d", got)
		}
	})
}

// Any number of servers serve one PostgreSQL database. What one of them answers is in force on the others.
func TestASecondServerOnTheSameDatabaseJoins(t *testing.T) {
	t.Parallel()
	p := newInstance(t, dbtest.Postgres(t))
	first := p.serve(t)
	q := p
	q.data += "2"
	second := q.serve(t)
	for _, s := range []*process{first, second} {
		if got := status(t, s.address(), first.key()); got != 200 {
			t.Errorf("the key of the first start: %d", got)
		}
	}
	var minted struct {
		ID  string `json:"id"`
		Key string `json:"api_key"`
	}
	q.mustAdmin(t, &minted, "key", "create", "--workspace", "default", "--email", "owner@localhost", "--json")
	if got := status(t, first.address(), minted.Key); got != 200 {
		t.Errorf("a key of the second server, on the first: %d", got)
	}
	p.mustAdmin(t, nil, "key", "revoke", "--workspace", "default", "--id", minted.ID)
	if got := status(t, second.address(), minted.Key); got != 401 {
		t.Errorf("a key that the first server has revoked, on the second: %d", got)
	}
	second.kill()
	p.mustAdmin(t, &minted, "key", "create", "--workspace", "default", "--email", "owner@localhost", "--json")
	if got := status(t, first.address(), minted.Key); got != 200 {
		t.Errorf("after the second server was killed: %d", got)
	}
}

func TestNewerDatabaseAndWrongRootKeyAreRefused(t *testing.T) {
	t.Parallel()
	p := newInstance(t, dbtest.Postgres(t))
	p.serve(t).stop(t)
	other := newInstance(t, secret.Text{})
	other.serve(t).stop(t)
	wrong := p
	wrong.root = other.root
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off"}, wrong.flags()...)
	stdout, stderr, code := run(t, args...)
	fails(t, stdout, stderr, code, "the root key does not open this database")

	conn, err := pgx.Connect(t.Context(), p.url.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)`); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off"}, p.flags()...)
	stdout, stderr, code = run(t, args...)
	fails(t, stdout, stderr, code, "the database is newer than this binary")
}

// A mistyped folder must not become a second, empty installation. A folder records the engine that holds its data.
func TestAdminNeverMakesAnInstallationByMistake(t *testing.T) {
	t.Parallel()
	lite := newInstance(t, secret.Text{})
	foreign := lite
	foreign.data = t.TempDir()
	writeFile(t, foreign.data+"/notes.txt", "mine")
	stdout, stderr, code := foreign.admin(t, "workspace", "list")
	fails(t, stdout, stderr, code, "there is no Sovereign data in")
	if files, err := os.ReadDir(foreign.data); err != nil || len(files) > 2 { // the notes, and the lock that was held meanwhile
		t.Errorf("%v %v", files, err)
	}
	var made struct {
		APIKey string `json:"api_key"`
	}
	lite.mustAdmin(t, &made, "bootstrap", "--workspace", "default", "--email", "a@b.test", "--json") // this is what makes one
	if server := lite.serve(t); status(t, server.address(), made.APIKey) != 200 {
		t.Error("a workspace made without a server")
	} else {
		server.stop(t)
	}
	crossed := lite
	crossed.url = dbtest.Postgres(t)
	stdout, stderr, code = crossed.admin(t, "workspace", "list")
	fails(t, stdout, stderr, code, "is in the embedded database, and database_url is set")

	post := newInstance(t, dbtest.Postgres(t))
	stdout, stderr, code = post.admin(t, "workspace", "list")
	fails(t, stdout, stderr, code, "there is no data folder")
	post.serve(t).stop(t)
	forgot := post
	forgot.url = secret.Text{}
	stdout, stderr, code = forgot.admin(t, "workspace", "list")
	fails(t, stdout, stderr, code, "is in PostgreSQL: database_url is missing")
	if _, err := os.Stat(post.data + "/core.db"); err == nil {
		t.Error("a forgotten database_url made an embedded database")
	}
}

func TestFailedFirstStartLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	p.root = "/proc/nowhere/root.key"
	stdout, stderr, code := run(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off"}, p.flags()...)...)
	fails(t, stdout, stderr, code, "root key file /proc/nowhere/root.key")
	if _, err := os.Stat(p.data); err == nil {
		t.Errorf("left behind:\n%s", everything(t, p))
	}
}

func TestReadinessIsToldToSystemd(t *testing.T) {
	path := newInstance(t, secret.Text{}).data + ".sock"
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = told.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	s := newInstance(t, secret.Text{}).serve(t)
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		_ = told.SetReadDeadline(time.Now().Add(limit))
		text := make([]byte, 64)
		n, err := told.Read(text)
		if err != nil || string(text[:n]) != want {
			t.Errorf("want %s, got %q %v", want, text[:n], err)
		}
		if want == "READY=1" && s.stop(t) != 0 {
			t.Errorf("%s", s.log)
		}
	}
}
