package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
)

// listenFD is the first inherited file descriptor of systemd's socket activation.
const listenFD = 3

// listen opens the API's socket, or takes the one that systemd holds open: with it, connections that arrive while the
// server restarts wait in the kernel instead of being refused.
func listen(address string) (net.Listener, error) {
	if inherited() {
		file := os.NewFile(listenFD, "systemd socket")
		defer func() { _ = file.Close() }() // the listener has its own copy
		l, err := net.FileListener(file)
		if err != nil {
			return nil, fmt.Errorf("inherited socket: %w", err)
		}
		return l, nil
	}
	return bind(address)
}

func inherited() bool {
	pid, err := strconv.Atoi(os.Getenv("LISTEN_PID"))
	if err != nil || pid != os.Getpid() {
		return false
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	return err == nil && n >= 1
}

func bind(address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is taken already", address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s may not be listened on by this user", address)
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// notifyManager tells systemd the state of the server, when systemd has set NOTIFY_SOCKET.
func notifyManager(state string) {
	conn, err := new(net.Dialer).DialContext(context.Background(), "unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return // not started by systemd
	}
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}

// socketName is the admin socket in the data folder.
const socketName = "admin.sock"

// maxSocketPath is the longest path of a Unix socket that the kernel accepts.
const maxSocketPath = 107

func socketPath(folder string) (string, error) {
	path := filepath.Join(folder, socketName)
	if len(path) > maxSocketPath {
		return "", bad(
			"data_dir", "%s is too long for the admin socket in it (%d characters; at most %d)", folder, len(path),
			maxSocketPath,
		)
	}
	return path, nil
}

// listenAdmin opens the admin socket. This process holds the folder's lock, so an existing socket is that of a dead
// server.
func listenAdmin(folder string) (net.Listener, error) {
	path, err := socketPath(folder)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // in addition to the folder's mode
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// A certificate is the one that TLS uses. A reload replaces it; open connections keep theirs.
type certificate struct {
	now atomic.Pointer[tls.Certificate]
}

func (c *certificate) load(from TLS) error {
	if from.Cert == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(from.Cert, from.Key)
	if err != nil {
		return bad("tls", "%w", err)
	}
	c.now.Store(&pair)
	return nil
}

func (c *certificate) config() *tls.Config {
	if c.now.Load() == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
		NextProtos:     []string{"h2", "http/1.1"},
	}
}
