// Package gateway serves inference requests. It finds the model, holds the money, sends the caller's bytes to the
// provider, relays the answer as it arrives, and charges exactly what was used. It reads live state and reaches no
// database.
//
// Its files build on each other in this order: gateway (configuration) and metrics; clock, reservation, failure; bill
// (the money), response (what the caller is sent), source (what the provider sends), circuit, completion (a request of
// the product); run (the state of a request); cached, recording, logged, draw; the relays whole, with vectors, and
// stream, with polled, chatstream and responsestream; endpoint, attempt, with engine, serve; http and complete, the two
// front ends.
package gateway

import (
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"sovereign/internal/base/limit"
	"sovereign/internal/live"
	"sovereign/internal/net/breaker"
	"sovereign/internal/net/poller"
	"sovereign/internal/plane/cache"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/engines"
	"sovereign/internal/plane/gateway/deadline"
	"sovereign/internal/plane/meter"
	"sovereign/internal/plane/till"
	"sovereign/internal/wire/upstream"
)

// A Config holds what a gateway depends on.
type Config struct {
	Fleet      func() *upstream.Fleet
	Aliases    *live.Aliases
	Own        *live.OwnModels
	Engines    *engines.Registry // that serve own models
	Keys       *live.Keyring
	Workspaces *live.AllSettings
	Till       *till.Till
	Meter      *meter.Meter // nil limits nothing
	Bounds     *edge.Bounds
	Log        *slog.Logger
	Count      func(text string) int64 // counts tokens with a tokenizer; slow
	Metrics    *Metrics
	Random     func() float64 // uniform in [0, 1)
	Cache      *cache.Cache
	Breaker    *breaker.Breaker
	Recorder   *capture.Recorder // nil logs no exchanges
	Poller     *poller.Poller    // serves streams; nil gives each stream a goroutine that wakes for every event
}

// Settings may change while requests run.
type Settings struct {
	Retries          int           // of one model, after the first attempt
	TryTimeout       time.Duration // of an attempt, until the provider's answer begins
	StallTimeout     time.Duration // between two pieces of an answer
	LeaveTimeout     time.Duration // for the provider to report its usage, after the caller of a stream has left
	RequestTimeout   time.Duration // for all attempts and the whole answer
	OwnKeyFee        int64         // millionths of a model's price, for a workspace that calls it with its own key
	DefaultMaxTokens int64         // of output, if neither the caller nor the workspace sets any; 0 for the model's own
}

// A Gateway serves inference.
type Gateway struct {
	Config
	settings atomic.Pointer[Settings]
	counters chan struct{} // bounds how many requests count with the tokenizer at once, to leave CPU to the others
	requests deadline.Registry
	running  atomic.Int64
	logLimit *limit.Windows[string] // of log lines about failed attempts

	pingInterval time.Duration // after which an idle stream is sent a keep-alive comment
	// freeWait is how long a caller may wait for a whole answer and then leave, so that the provider's work is
	// cancelled and costs nothing.
	freeWait time.Duration
}

// New returns a gateway. Apply sets its settings.
func New(c Config) *Gateway {
	g := &Gateway{
		Config: c, counters: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4)),
		logLimit: limit.NewWindows[string](1, 10*time.Second), pingInterval: 15 * time.Second,
		freeWait: time.Second,
	}
	g.settings.Store(&Settings{})
	return g
}

// Apply puts settings in force for requests that begin from now on.
func (g *Gateway) Apply(s Settings) { g.settings.Store(&s) }

// Running returns how many requests run.
func (g *Gateway) Running() int64 { return g.running.Load() }

// Abort ends every running request. A stream that has begun ends with an error event.
func (g *Gateway) Abort() { g.requests.Stop(errStopping) }

// The causes with which a request ends, beside those of package deadline.
var (
	errLeft     = errors.New("the caller left")
	errStopping = errors.New("the server is stopping")
	errRevoked  = errors.New("the key was revoked, or its user was removed")
	errExpired  = errors.New("the key expired")
)
