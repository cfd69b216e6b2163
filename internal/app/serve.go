package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"

	"sovereign/internal/base/panics"
	"sovereign/internal/net/http1"
	"sovereign/internal/plane/edge"
)

// A server serves an instance: the API on the network, operations beside it, administration on a socket.
type server struct {
	config   *Config
	reread   func() (*Config, error)
	log      *slog.Logger
	level    *slog.LevelVar
	instance *instance
	cert     certificate

	listener               *edge.Listener
	lane                   *http1.Server // nil when it is off
	api, operations, admin *http.Server
	failed                 chan error
}

// A greeting is what a start makes beside serving.
type greeting struct{ bootstrap, demo bool }

// serve runs until a signal ends it. It listens before it opens the data, so that a taken port changes nothing.
func serve(c *Config, reread func() (*Config, error), first greeting, out, logs io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	if os.Getenv("GOGC") == "" {
		ballast := make([]byte, ballastSize)
		defer runtime.KeepAlive(ballast)
	}
	s := &server{config: c, reread: reread, level: new(slog.LevelVar), failed: make(chan error, 3)}
	s.log = newLog(c, s.level, logs)
	slog.SetDefault(s.log) // for packages that have none, such as panics
	if err := s.cert.load(c.TLS); err != nil {
		return err
	}
	public, err := listen(c.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = public.Close() }()
	var operations net.Listener
	if c.OperationsListen != "off" {
		if operations, err = bind(c.OperationsListen); err != nil {
			return err
		}
		defer func() { _ = operations.Close() }()
	}
	tracer, flush, err := traces(ctx, c, s.log)
	if err != nil {
		return err
	}
	starting, stopStarting := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stopStarting()
	if err := s.open(starting, tracer); err != nil {
		return err
	}
	defer s.instance.close()
	at := s.address(public.Addr())
	s.instance.dash.address.Store(&at)
	s.instance.dash.apply(c)
	socket, err := listenAdmin(c.DataDir)
	if err != nil {
		return err
	}
	s.instance.start()
	if err := s.greet(ctx, public.Addr(), first, out); err != nil {
		_ = socket.Close()
		return err
	}
	s.start(public, operations, socket)
	s.warnExposed(public, operations)
	s.log.Info("serving", "address", s.address(public.Addr()), "version", version(),
		"storage", s.instance.storage.db.Engine, "data", c.DataDir,
		"listen", public.Addr().String(), "operations", c.OperationsListen)
	notifyManager("READY=1")
	err = s.wait(signals)
	notifyManager("STOPPING=1")
	go s.force(signals)
	s.drain()
	s.flushTraces(ctx, flush)
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

// open opens the instance, and gives up when ctx ends.
func (s *server) open(ctx context.Context, tracer trace.Tracer) (err error) {
	if s.instance, err = open(ctx, s.config, mayCreate, s.log, tracer); err != nil {
		if ctx.Err() != nil {
			return errors.New("stopped while starting")
		}
		return err
	}
	s.apply(s.config)
	return nil
}

// greet creates the first workspace and a demo if it is asked to, and says how to create one where there is none.
func (s *server) greet(ctx context.Context, at net.Addr, first greeting, out io.Writer) error {
	if first.bootstrap {
		if err := s.instance.firstStart(ctx, s.address(at), out); err != nil {
			return fmt.Errorf("first start: %w", err)
		}
	}
	if first.demo {
		if err := s.instance.firstDemo(ctx, out); err != nil {
			return fmt.Errorf("make a demo: %w", err)
		}
	}
	if all, err := s.instance.domains.workspaces.List(ctx, 1, 0); err == nil && len(all) == 0 {
		s.log.Info("there is no workspace yet: make one with sovereign admin bootstrap", "data_dir", s.config.DataDir)
	}
	return nil
}

// flushTraces sends the traces that are left.
func (s *server) flushTraces(ctx context.Context, flush func(context.Context) error) {
	ctx, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	if err := flush(ctx); err != nil {
		s.log.Warn("traces were not all sent", "err", err)
	}
}

// ballastSize is the size of an allocation that is never touched, and so uses no physical memory. The garbage collector
// counts it as live, and runs less often for it. A gateway has a small heap and much garbage: a tenth of its time would
// go into collecting. With a large heap the ballast makes no difference; a higher GOGC would.
const ballastSize = 64 << 20

// memory returns what the process may use: the memory that the limits grant, and some for everything else. It is the
// garbage collector's memory limit. Without one, the collector lets garbage grow to the size of what is in use, and the
// process to twice what the limits grant.
func (l Limits) memory() int64 {
	const (
		perConnection  = 16 << 10 // buffers and a goroutine
		everythingElse = 256 << 20
	)
	return int64(l.BufferedMemory) + int64(l.Cache) + l.Connections*perConnection + ballastSize + everythingElse
}

// warnExposed warns of what is reachable from other machines and perhaps should not be.
func (s *server) warnExposed(public, operations net.Listener) {
	if s.cert.now.Load() == nil && !loopback(public) {
		s.log.Warn("keys travel in the clear: the API is served beyond this machine without TLS",
			"listen", public.Addr().String())
	}
	if operations != nil && !loopback(operations) {
		s.log.Warn("metrics and profiles are served beyond this machine, without authentication",
			"operations_listen", operations.Addr().String())
	}
}

func loopback(l net.Listener) bool {
	address, ok := l.Addr().(*net.TCPAddr)
	return !ok || address.IP.IsLoopback()
}

// start serves the three listeners.
func (s *server) start(public, operations, socket net.Listener) {
	l := s.config.Limits
	errorLog := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	s.api = &http.Server{
		Handler: s.instance.routers.public, ConnContext: edge.ConnContext, ErrorLog: errorLog,
		ReadHeaderTimeout: l.HeaderTimeout, ReadTimeout: l.BodyTimeout, IdleTimeout: l.IdleTimeout,
		MaxHeaderBytes:               int(l.Headers),
		DisableGeneralOptionsHandler: true, // OPTIONS * too gets an id and an envelope
	}
	s.admin = &http.Server{
		Handler: s.instance.routers.operators, ConnContext: edge.PeerContext,
		ReadHeaderTimeout: l.HeaderTimeout, ErrorLog: errorLog,
	}
	s.listener = edge.Listen(public, s.instance.plane.bounds)
	served := http1.Strict(s.listener)
	switch config := s.cert.config(); {
	case config != nil:
		s.api.TLSConfig = config
		served = s.openTLS(config)
	case s.config.FastLane:
		served = s.openLane()
	}
	go s.run("API", s.api, served)
	go s.run("admin socket", s.admin, socket)
	if operations != nil {
		s.operations = &http.Server{
			Handler: ownHosts(s.config.operationsHosts(), s.instance.operations()), ReadHeaderTimeout: l.HeaderTimeout,
			ErrorLog: errorLog,
		}
		go s.run("operations", s.operations, http1.Strict(operations))
	}
}

// openLane puts the fast lane before the API's server: it serves plain inference requests itself, and hands every
// connection that sends something else over to net/http.
func (s *server) openLane() net.Listener {
	var targets []string
	for _, route := range s.instance.plane.routes() {
		targets = append(targets, route.Pattern(), "/api"+route.Pattern())
	}
	l := s.config.Limits
	others := http1.NewHandover(s.listener.Addr())
	s.lane = &http1.Server{
		Handler: s.instance.routers.public, Targets: targets, Fallback: others.Deliver, Log: s.log,
		ConnContext:   func(conn net.Conn) context.Context { return edge.ConnContext(context.Background(), conn) },
		HeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout,
		BodyTimeout: l.BodyTimeout, BodyRate: int64(l.UploadRate),
	}
	go s.accept(func() error { return s.lane.Serve(s.listener) })
	return others
}

// openTLS checks what connections send after their handshake, as openLane does.
func (s *server) openTLS(config *tls.Config) net.Listener {
	secure := http1.NewStrictTLS(s.listener, config, s.config.Limits.HeaderTimeout)
	go s.accept(secure.Serve)
	return secure
}

// accept runs what accepts the API's connections, and hands them over. Open ones can be handed over after the listener
// is closed: the API's server closes the handover.
func (s *server) accept(serve func() error) {
	if err := panics.Call(s.log, "accepting connections", serve); !errors.Is(err, net.ErrClosed) {
		s.failed <- fmt.Errorf("API: %w", err)
	}
}

func (s *server) run(name string, server *http.Server, l net.Listener) {
	err := panics.Call(s.log, name, func() error { return server.Serve(l) })
	if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.failed <- fmt.Errorf("%s: %w", name, err)
	}
}

// force ends the process at a second signal to stop. A signal within a second of the first counts as the same: shells
// and supervisors signal a process and its group together.
func (s *server) force(signals <-chan os.Signal) {
	first := time.Now()
	for got := range signals {
		if got != syscall.SIGHUP && time.Since(first) > time.Second {
			s.log.Warn("told twice to stop; running requests are cut off")
			os.Exit(1)
		}
	}
}

func (s *server) wait(signals <-chan os.Signal) error {
	for {
		select {
		case err := <-s.failed:
			return err
		case err := <-s.instance.failed:
			return err
		case <-s.instance.leaving:
			s.log.Info("stopping: an operator has asked this server to leave", "drain", s.config.Limits.Drain.String())
			return nil
		case got := <-signals:
			if got == syscall.SIGHUP {
				s.reload()
				continue
			}
			s.log.Info("stopping", "signal", got.String(), "drain", s.config.Limits.Drain.String())
			return nil
		}
	}
}

// drain lets running requests end, for a bounded time, while no new ones are taken. With an inherited socket, new
// connections wait in the kernel for the next process.
func (s *server) drain() {
	go s.instance.background.stopCalling()
	s.instance.draining.Store(true) // load balancers stop sending; open connections are still served, and then closed
	_ = s.listener.Close()
	// net/http drops a request that arrives after Shutdown has begun, so open connections may send one more before it.
	deadline := time.Now().Add(min(lastRequest, s.config.Limits.Drain))
	for s.instance.plane.bounds.Connections.Counts().Open > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Limits.Drain)
	defer cancel()
	for _, server := range s.servers() {
		if err := server.Shutdown(ctx); err != nil {
			s.instance.plane.gateway.Abort() // streams say so before they end, and are charged what they delivered
			last, stop := context.WithTimeout(context.Background(), abortTimeout)
			if server.Shutdown(last) != nil {
				_ = server.Close()
			}
			stop()
			s.log.Warn("requests were cut off after the drain", "err", err)
		}
	}
	// A handler outlives its closed connection. It still has to charge what its stream delivered.
	for end := time.Now().Add(settleTimeout); s.instance.plane.gateway.Running() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// A stoppable can let its requests end, or close at once.
type stoppable interface {
	Shutdown(ctx context.Context) error
	Close() error
}

// servers lists the servers that run.
func (s *server) servers() (all []stoppable) {
	if s.lane != nil {
		all = append(all, s.lane)
	}
	for _, server := range []*http.Server{s.api, s.admin, s.operations} {
		if server != nil {
			all = append(all, server)
		}
	}
	return all
}

// abortTimeout is how long requests that are cut off may take to end by themselves.
const abortTimeout = 3 * time.Second

// settleTimeout is how long aborted inference requests may take to charge what they delivered. One that takes longer is
// charged by the next start, from the journal.
const settleTimeout = 10 * time.Second

// lastRequest is how long open connections may still send a request to a stopping server.
const lastRequest = time.Second

// reload puts a changed configuration in force, except the keys that need a restart. A bad configuration changes
// nothing.
func (s *server) reload() {
	next, err := s.reread()
	if err != nil {
		s.log.Error("reload: the configuration is kept as it was", "err", err)
		return
	}
	if keys := keepFixed(s.config, next); len(keys) > 0 {
		s.log.Warn("reload: these need a restart", "keys", keys)
	}
	if err := s.instance.models.load(next); err != nil {
		s.log.Error("reload: the configuration is kept as it was", "err", err)
		return
	}
	s.instance.member.Settings(settings(s.instance.models.catalog()))
	if err := s.cert.load(next.TLS); err != nil {
		s.log.Error("reload: the certificate is kept as it was", "err", err)
	}
	s.config = next
	s.apply(s.config)
	s.log.Info("reloaded")
}

// apply puts in force what may change while running. c has been checked.
func (s *server) apply(c *Config) {
	level, _ := c.level()
	s.level.Set(level)
	proxies, _ := prefixes("trusted_proxies", c.TrustedProxies)
	s.instance.plane.bounds.Proxies.Store(&proxies)
	unlimited, _ := prefixes("unlimited_addresses", c.Unlimited)
	s.instance.plane.bounds.Unlimited.Store(&unlimited)
	s.instance.apply(c)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(c.Limits.memory())
	}
}

// address is the URL of the API for a client on this machine.
func (s *server) address(at net.Addr) string { return urlOf(at.String(), s.cert.now.Load() != nil) }

func newLog(c *Config, level *slog.LevelVar, to io.Writer) *slog.Logger {
	at, _ := c.level() // it has been checked
	level.Set(at)
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
