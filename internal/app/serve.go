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
	"syscall"
	"time"

	"sovereign/internal/base/limit"
	"sovereign/internal/net/http1"
	"sovereign/internal/plane/edge"
)

// A server is a house that is served: the API on the network, operations beside it, administration on a socket.
type server struct {
	config *Config
	reread func() (*Config, error)
	log    *slog.Logger
	level  *slog.LevelVar
	house  *house
	cert   certificate
	slots  *limit.Budget

	listener               *edge.Listener
	lane                   *http1.Server // nil when it is off
	api, operations, admin *http.Server
	failed                 chan error
}

// serve runs until a signal ends it. It listens before it touches the data, so that a taken port changes nothing.
func serve(c *Config, reread func() (*Config, error), bootstrap bool, out, logs io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	if os.Getenv("GOGC") == "" {
		ballast := make([]byte, ballastSize)
		defer runtime.KeepAlive(ballast)
	}
	s := &server{config: c, reread: reread, level: new(slog.LevelVar), slots: limit.NewBudget(c.Limits.Connections), failed: make(chan error, 3)}
	s.log = newLog(c, s.level, logs)
	if err := s.cert.load(c.TLS); err != nil {
		return err
	}
	public, err := listen(c.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = public.Close() }()
	var watched net.Listener
	if c.OperationsListen != "off" {
		if watched, err = bind(c.OperationsListen); err != nil {
			return err
		}
		defer func() { _ = watched.Close() }()
	}
	tracer, flush, err := traces(ctx, c, s.log)
	if err != nil {
		return err
	}
	starting, started := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer started()
	if s.house, err = open(starting, c, toMake, s.log, tracer); err != nil {
		if starting.Err() != nil {
			return errors.New("stopped while starting")
		}
		return err
	}
	defer s.house.close()
	s.apply(c)
	socket, err := listenAdmin(c.DataDir)
	if err != nil {
		return err
	}
	s.house.start()
	address := s.address(public.Addr())
	if bootstrap {
		if err := s.house.firstStart(ctx, address, out); err != nil {
			_ = socket.Close()
			return fmt.Errorf("first start: %w", err)
		}
	}
	if there, err := s.house.workspaces.List(ctx, 1, 0); err == nil && len(there) == 0 {
		s.log.Info("there is no workspace yet: make one with sovereign admin bootstrap", "data_dir", c.DataDir)
	}
	s.start(public, watched, socket)
	s.exposed(public, watched)
	s.log.Info("serving", "address", address, "version", version(), "storage", s.house.db.Engine, "data", c.DataDir,
		"listen", public.Addr().String(), "operations", c.OperationsListen)
	notify("READY=1")
	err = s.wait(signals)
	notify("STOPPING=1")
	go s.force(signals)
	s.drain()
	ending, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	if err := flush(ending); err != nil {
		s.log.Warn("traces were not all sent", "err", err)
	}
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}

// ballastSize is memory that is never touched, and so takes none of the machine's: the collector of garbage counts it as in use, and lets
// so much more garbage gather before it works. What a gateway has in use is little, and what it throws away is much: else a tenth of its
// time would go into collecting. Where much is in use it makes no difference, which a higher GOGC would.
const ballastSize = 64 << 20

// exposed warns of what the network can see that it should perhaps not.
func (s *server) exposed(public, watched net.Listener) {
	if s.cert.now.Load() == nil && !loopback(public) {
		s.log.Warn("keys travel in the clear: the API is served beyond this machine without TLS", "listen", public.Addr().String())
	}
	if watched != nil && !loopback(watched) {
		s.log.Warn("metrics and profiles are served beyond this machine, without authentication", "operations_listen", watched.Addr().String())
	}
}

func loopback(l net.Listener) bool {
	address, ok := l.Addr().(*net.TCPAddr)
	return !ok || address.IP.IsLoopback()
}

// start serves the three listeners.
func (s *server) start(public, watched, socket net.Listener) {
	l := s.config.Limits
	errorLog := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	s.api = &http.Server{
		Handler: s.house.public, ConnContext: edge.ConnContext, ErrorLog: errorLog,
		ReadHeaderTimeout: l.HeaderTimeout, ReadTimeout: l.BodyTimeout, IdleTimeout: l.IdleTimeout, MaxHeaderBytes: int(l.Headers),
		DisableGeneralOptionsHandler: true, // OPTIONS * too gets an id and an envelope
	}
	s.admin = &http.Server{Handler: s.house.operators, ConnContext: edge.PeerContext, ReadHeaderTimeout: l.HeaderTimeout, ErrorLog: errorLog}
	s.listener = edge.Listen(public, s.slots, &s.house.bounds.Timeout)
	served := net.Listener(s.listener)
	switch config := s.cert.config(); {
	case config != nil:
		s.api.TLSConfig = config
		served = tls.NewListener(served, config)
	case s.config.FastLane:
		served = s.openLane()
	}
	go s.run("API", s.api, served)
	go s.run("admin socket", s.admin, socket)
	if watched != nil {
		s.operations = &http.Server{Handler: s.house.operations(), ReadHeaderTimeout: l.HeaderTimeout, ErrorLog: errorLog}
		go s.run("operations", s.operations, watched)
	}
}

// openLane puts the fast lane before the API's server: it answers plain inference requests itself, and hands over every connection
// that brings something else.
func (s *server) openLane() net.Listener {
	var targets []string
	for _, route := range s.house.inferenceRoutes() {
		targets = append(targets, "/v1"+route.Path, "/api/v1"+route.Path)
	}
	l := s.config.Limits
	rest := http1.NewHandover(s.listener.Addr())
	s.lane = &http1.Server{
		Handler: s.house.public, Targets: targets, Fallback: rest.Deliver, Log: s.log,
		ConnContext:   func(conn net.Conn) context.Context { return edge.ConnContext(context.Background(), conn) },
		HeaderTimeout: l.HeaderTimeout, BodyTimeout: l.BodyTimeout, IdleTimeout: l.IdleTimeout,
	}
	go func() { // who has connected may still be handed over when no others are accepted: the API's server closes rest
		if err := s.lane.Serve(s.listener); !errors.Is(err, net.ErrClosed) {
			s.failed <- fmt.Errorf("API: %w", err)
		}
	}()
	return rest
}

func (s *server) run(name string, server *http.Server, l net.Listener) {
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.failed <- fmt.Errorf("%s: %w", name, err)
	}
}

// force ends the process when it is told a second time to stop. What follows the first signal at once is the same wish:
// shells and supervisors signal a process and its group together.
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
	go s.house.rest()
	s.house.draining.Store(true) // probers send no more; who has connected is still served, and then closed
	_ = s.listener.Close()
	// net/http drops a request that arrives once Shutdown has begun, so connections get to bring one more before it.
	for patience := time.Now().Add(min(lastRequest, s.config.Limits.Drain)); s.slots.Used() > 0 && time.Now().Before(patience); {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Limits.Drain)
	defer cancel()
	for _, server := range s.servers() {
		if err := server.Shutdown(ctx); err != nil {
			s.house.gateway.Abort() // streams say so before they end, and are charged what they delivered
			last, stop := context.WithTimeout(context.Background(), lastWords)
			if server.Shutdown(last) != nil {
				_ = server.Close()
			}
			stop()
			s.log.Warn("requests were cut off after the drain", "err", err)
		}
	}
}

// A stoppable ends its requests, or itself.
type stoppable interface {
	Shutdown(ctx context.Context) error
	Close() error
}

// servers are those that run.
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

// lastWords is how long requests that are cut off get to end by themselves.
const lastWords = 3 * time.Second

// lastRequest is how long open connections may still bring a request to a stopping server.
const lastRequest = time.Second

// reload puts a changed configuration in force as far as it can be changed; a bad one changes nothing.
func (s *server) reload() {
	next, err := s.reread()
	if err != nil {
		s.log.Error("reload: the configuration is kept as it was", "err", err)
		return
	}
	if keys := keepFixed(s.config, next); len(keys) > 0 {
		s.log.Warn("reload: these need a restart", "keys", keys)
	}
	if err := s.house.stock(next); err != nil {
		s.log.Error("reload: the configuration is kept as it was", "err", err)
		return
	}
	if err := s.cert.load(next.TLS); err != nil {
		s.log.Error("reload: the certificate is kept as it was", "err", err)
	}
	s.config = next
	s.apply(s.config)
	s.log.Info("reloaded")
}

// apply puts in force what may change while running. c was checked.
func (s *server) apply(c *Config) {
	level, _ := c.level()
	s.level.Set(level)
	proxies, _ := prefixes("trusted_proxies", c.TrustedProxies)
	s.house.bounds.Proxies.Store(&proxies)
	s.house.apply(c)
	s.slots.Set(c.Limits.Connections)
}

// address is where a client on this machine finds the API.
func (s *server) address(at net.Addr) string {
	scheme := "http"
	if s.cert.now.Load() != nil {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return scheme + "://" + at.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

func newLog(c *Config, level *slog.LevelVar, to io.Writer) *slog.Logger {
	at, _ := c.level() // was checked
	level.Set(at)
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
