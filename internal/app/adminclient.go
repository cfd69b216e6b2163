package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/id"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/db"
)

// An admin calls the operators' router: that of the running server over its socket or, when none runs, that of an
// instance which it opens itself, with the same lock and the same recovery.
type admin struct {
	key     string // of the next POST, for its Idempotency-Key; empty for one of its own
	storage Storage
	out     io.Writer
	client  *http.Client

	instance *instance // when there is no server, with the pipe that it is served on
	within   *pipes
	server   *http.Server
}

// dial connects to the server, or opens an instance when there is none.
func dial(s Storage, mode openMode, out io.Writer) (*admin, error) {
	path, err := socketPath(s.DataDir)
	if err != nil {
		return nil, err
	}
	a := &admin{storage: s, out: out}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
	if err == nil {
		_ = conn.Close()
		a.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (
			net.Conn, error,
		) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
		return a, nil
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	quiet := slog.New(slog.DiscardHandler)
	if a.instance, err = open(context.Background(), defaults(s), mode, quiet, nil); err != nil {
		if errors.Is(err, db.ErrTaken) {
			return nil, fmt.Errorf("%w, and no admin socket answers in %s: name that server's data folder, or try again if it is starting or stopping", err, s.DataDir)
		}
		return nil, err
	}
	a.instance.start()
	a.within = newPipes()
	a.server = &http.Server{Handler: a.instance.routers.operators, ConnContext: edge.PeerContext} //nolint:gosec // it is reached from this process alone
	go func() { _ = a.server.Serve(a.within) }()
	a.client = &http.Client{Transport: &http.Transport{DialContext: a.within.dial}}
	return a, nil
}

func (a *admin) close() {
	if a.instance != nil {
		_ = a.server.Close()
		a.instance.close()
	}
}

// pipes is a listener for connections within the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "within", Net: "unix"} }

func (a *admin) get(path string, out any) error {
	return a.call(http.MethodGet, path, nil, out, repeatable)
}

func (a *admin) post(path string, in, out any) error {
	return a.call(http.MethodPost, path, in, out, repeatable)
}

// postWith is post with the operator's own Idempotency-Key, or one of this call when it is empty.
func (a *admin) postWith(key, path string, in, out any) error {
	a.key = key
	defer func() { a.key = "" }()
	return a.post(path, in, out)
}

// A repetition says whether a request may be sent again after its connection failed.
type repetition bool

const (
	repeatable repetition = true  // a read, an upsert, or a POST that carries an Idempotency-Key
	once       repetition = false // neither: the operator must check and decide
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
	if method == http.MethodPost && repeat == repeatable {
		key = cmp.Or(a.key, id.New("idem"))
	}
	response, err := a.send(method, path, body, key)
	if err != nil && repeat == repeatable {
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
	if err := json.Unmarshal(body, &refused, json.MatchCaseInsensitiveNames(true)); err != nil ||
		refused.Error.Message == "" {
		return fmt.Errorf("the server answered %d", status)
	}
	return errors.New(refused.Error.Message)
}
