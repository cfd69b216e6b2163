package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-json-experiment/json"

	"sovereign/internal/backup"
	"sovereign/internal/db"
	"sovereign/internal/id"
	"sovereign/internal/vault"
)

// An admin speaks to the operators' router: of the running server over its socket, or, when none runs, of a house
// that it opens itself, with the same lock and the same recovery.
type admin struct {
	storage Storage
	out     io.Writer
	client  *http.Client
	house   *house
}

// dial finds the server, or becomes it.
func dial(s Storage, why purpose, out io.Writer) (*admin, error) {
	path, err := socketPath(s.DataDir)
	if err != nil {
		return nil, err
	}
	a := &admin{storage: s, out: out}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
	if err == nil {
		_ = conn.Close()
		a.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
		return a, nil
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	quiet := slog.New(slog.DiscardHandler)
	if a.house, err = open(context.Background(), s, why, quiet, nil); err != nil {
		if errors.Is(err, db.ErrTaken) {
			return nil, fmt.Errorf("%w, and no admin socket answers in %s: name that server's data folder, or try again if it is starting or stopping", err, s.DataDir)
		}
		return nil, err
	}
	a.house.start()
	a.client = &http.Client{Transport: within{a.house.operators}}
	return a, nil
}

func (a *admin) close() {
	if a.house != nil {
		a.house.close()
	}
}

// within serves requests in this process.
type within struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper with a pipe, so that a long answer streams.
func (t within) RoundTrip(r *http.Request) (*http.Response, error) {
	ours, theirs := net.Pipe()
	server := &http.Server{Handler: t.handler} //nolint:gosec // nobody else can reach a pipe
	go func() { _ = server.Serve(&single{conn: theirs, done: make(chan struct{})}) }()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	return transport.RoundTrip(r)
}

// A single is a listener with one connection.
type single struct {
	conn net.Conn
	done chan struct{}
}

func (s *single) Accept() (net.Conn, error) {
	if s.conn == nil {
		<-s.done
		return nil, net.ErrClosed
	}
	conn := s.conn
	s.conn = nil
	return conn, nil
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return &net.UnixAddr{Name: "within", Net: "unix"} }

func (a *admin) get(path string, out any) error { return a.call(http.MethodGet, path, nil, out, keyed) }

func (a *admin) post(path string, in, out any) error {
	return a.call(http.MethodPost, path, in, out, keyed)
}

// A repetition says whether a request may be sent again after its connection broke.
type repetition bool

const (
	keyed   repetition = true  // a read, an upsert, or a POST that carries an Idempotency-Key
	unkeyed repetition = false // neither: the operator looks and decides
)

// call sends a request, once more when the connection broke and repeating cannot do a thing twice.
func (a *admin) call(method, path string, in, out any, repeat repetition) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	key := ""
	if method == http.MethodPost && repeat == keyed {
		key = id.New("idem")
	}
	response, err := a.send(method, path, body, key)
	if err != nil && repeat == keyed {
		response, err = a.send(method, path, body, key)
	}
	if err != nil {
		return fmt.Errorf("the server did not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("the server's answer broke off: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return refusal(response.StatusCode, text)
	}
	return json.Unmarshal(text, out)
}

func (a *admin) send(method, path string, body []byte, key string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, "http://admin"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	return a.client.Do(request)
}

func refusal(status int, body []byte) error {
	var refused struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal(body, &refused, json.MatchCaseInsensitiveNames(true)); err != nil || refused.Error.Message == "" {
		return fmt.Errorf("the server answered %d", status)
	}
	return errors.New(refused.Error.Message)
}

type backupCommand struct {
	File string `arg:"" help:"The file to write. It appears whole or not at all."`
}

func (c *backupCommand) Run(a *admin) error {
	response, err := a.send(http.MethodGet, "/admin/backup", nil, "")
	if err != nil {
		return fmt.Errorf("the server did not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return refusal(response.StatusCode, text)
	}
	end, size, err := save(c.File, response.Body)
	if err != nil {
		return err
	}
	var rows int64
	for _, n := range end.Rows {
		rows += n
	}
	_, err = fmt.Fprintf(a.out, "%s: %d rows, %d bytes, sha256 of the rows %s. The root key is not in it: keep %s too.\n",
		c.File, rows, size, end.Sha256, a.storage.RootKeyFile)
	return err
}

// save writes a backup beside its place, checks that it is whole, and then puts it there.
func save(path string, from io.Reader) (end backup.End, size int64, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err != nil {
		return end, 0, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	written := &sink{to: file}
	r, err := backup.NewReader(io.TeeReader(from, written))
	if err == nil {
		end, err = r.Each(func(db.Table, [][]any) error { return nil })
	}
	if written.err != nil {
		return end, 0, fmt.Errorf("write %s: %w", path, cause(written.err))
	}
	if err != nil {
		return end, 0, err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return end, 0, fmt.Errorf("write %s: %w", path, cause(err))
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return end, 0, err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return end, 0, err
	}
	return end, written.size, errors.Join(folder.Sync(), folder.Close())
}

// A sink counts what it passes on, and remembers why it could not: a full disk is not a broken backup.
type sink struct {
	to   io.Writer
	size int64
	err  error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.size += int64(n)
	s.err = err
	return n, err
}

type restoreCommand struct {
	File string `arg:"" help:"The backup."`
}

// Run needs no house: there is none yet. It takes the same lock as a server would.
func (c *restoreCommand) Run(t *terminal, parent *adminCommand) error {
	ctx, s := context.Background(), parent.Storage
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	root, err := vault.LoadRoot(s.RootKeyFile)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the root key file %s is missing; a restore needs the root key of the backup's day (--root-key-file)", s.RootKeyFile)
	}
	if err != nil {
		return fmt.Errorf("root key file %s: %w", s.RootKeyFile, err)
	}
	if _, err := takeFolder(s.DataDir, toMake, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	lock, err := db.LockFolder(s.DataDir)
	if err != nil {
		return folderError(s.DataDir, err)
	}
	defer func() { _ = lock.Release() }()
	if err := s.sameEngine(toMake); err != nil {
		return err
	}
	d, err := db.Open(ctx, s.DataDir, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	lease, err := d.Lease(ctx)
	if err != nil {
		return err
	}
	defer lease.Release()
	header, end, err := backup.Restore(ctx, d, file, func(ctx context.Context) error { return vault.Check(ctx, d, root) })
	if err != nil {
		return err
	}
	if err := s.rememberEngine(); err != nil {
		return err
	}
	var rows int64
	for _, n := range end.Rows {
		rows += n
	}
	into := s.DataDir
	if s.engine() == db.Postgres {
		into = "PostgreSQL"
	}
	_, err = fmt.Fprintf(t.out, "restored %d rows as of %s into %s; start it with the same root key file, %s\n", rows, header.CreatedAt, into, s.RootKeyFile)
	return err
}
