package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Server is a private PostgreSQL server for tests, on a free port and in a temporary folder, never run as root. It
// ends with the process that started it.
type Server struct {
	bin    string // the folder with initdb and postgres
	folder string
	port   int

	Settings []string // in addition to those of tests, such as "fsync=on"

	owner *syscall.Credential // the account to run as when we are root
	cmd   *exec.Cmd
	done  chan error

	turn sync.Mutex
	conn *pgx.Conn // to the server's own database; nil before it is used
}

var server = sync.OnceValues(func() (*Server, error) {
	if s, err := shared(); s != nil || err != nil {
		return s, err
	}
	s, err := NewServer()
	if err != nil {
		return nil, err
	}
	return s, s.Start()
})

// NewServer creates a cluster that does not run yet.
func NewServer() (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	sweep()
	folder, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, folder: folder}
	if os.Geteuid() == 0 {
		if s.owner, err = unprivileged(); err != nil {
			return nil, err
		}
		if err := os.Chown(folder, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return nil, err
		}
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	initdb := s.command("initdb", "--pgdata", s.data(), "--username", "sovereign", "--auth", "trust",
		"--encoding", "UTF8", "--no-sync", "--no-locale")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, nil
}

// prefix begins the name of a cluster's temporary folder.
const prefix = "sovereign-postgres-"

// sweep removes the clusters of processes that have ended: a server ends with its process, its folder does not.
func sweep() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, folder := range folders {
		info, err := os.Stat(folder)
		if err != nil || time.Since(info.ModTime()) < 15*time.Minute {
			continue // it may just be created
		}
		text, _ := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
		first, _, _ := strings.Cut(string(text), "\n")
		if pid, err := strconv.Atoi(first); err != nil || syscall.Kill(pid, 0) != nil {
			_ = os.RemoveAll(folder)
		}
	}
}

// Start runs the server and waits until it answers. What it has committed survives Stop, not a crash of the machine.
func (s *Server) Start() error {
	args := []string{
		"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.folder,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "max_connections=1000", "-c", "shared_buffers=64MB",
		"-c", "jit=off", // to compile a query takes longer than all queries of most tests
	}
	for _, setting := range s.Settings {
		args = append(args, "-c", setting)
	}
	s.cmd = s.command("postgres", args...)
	s.done = make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		// The parent-death signal goes out when the starting thread ends, so this one stays until the server does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.done <- s.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	return s.await()
}

func (s *Server) await() error {
	var err error
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, s.url("postgres")); err == nil {
			err = conn.Close(ctx)
			cancel()
			return err
		}
		cancel()
		select {
		case ended := <-s.done:
			return fmt.Errorf("postgres ended at once: %w", ended)
		default:
		}
	}
	return fmt.Errorf("postgres does not answer: %w", err)
}

// Stop ends the server at once, as a crash would for its clients; Start brings it back with its data.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return err
	}
	<-s.done
	return nil
}

// Remove deletes the cluster.
func (s *Server) Remove() error { return os.RemoveAll(s.folder) }

// URL returns the URL of the server's default database.
func (s *Server) URL() string { return s.url("postgres") }

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://sovereign@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+s.folder)
	// Setsid gives the postmaster a session of its own, as a service manager does. Where the kernel groups tasks by
	// session (sched_autogroup), each session gets an equal share of the processor. Each backend makes a session; the
	// postmaster, which accepts connections, would share one with all tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Pdeathsig: syscall.SIGQUIT, Setsid: true}
	return cmd
}

// binaries finds PostgreSQL's own folder: Debian keeps initdb off the PATH.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(resolved), nil
		}
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"} {
		folders, _ := filepath.Glob(pattern)
		for _, folder := range folders {
			if _, err := os.Stat(filepath.Join(folder, "initdb")); err == nil {
				return folder, nil
			}
		}
	}
	return "", errors.New("initdb is not installed; `make setup` installs it")
}

// unprivileged returns the account that root starts the server as: PostgreSQL refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("running as root, and there is neither a postgres nor a nobody account to start PostgreSQL as")
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
