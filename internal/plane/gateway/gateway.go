// Package gateway is the road of an inference request: find the model, hold the money, send the caller's bytes, relay
// the answer as it arrives, and charge exactly what it used. It reads what is live and reaches no database.
package gateway

import (
	"log/slog"
	"net/http"
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
	"sovereign/internal/plane/till"
	"sovereign/internal/wire/upstream"
)

// A Config is what a gateway stands on.
type Config struct {
	Fleet      func() *upstream.Fleet
	Aliases    *live.Aliases
	Keys       *live.Keyring
	Workspaces *live.AllSettings
	Till       *till.Till
	Bounds     *edge.Bounds
	Log        *slog.Logger
	Count      func(text string) int64 // tokens, exactly; slow
	Metrics    *Metrics
	Random     func() float64 // uniform in [0, 1)
	Cache      *cache.Cache
	Breaker    *breaker.Breaker
	Recorder   *capture.Recorder // nil logs nothing
	Poller     *poller.Poller    // for streams; nil for a goroutine that wakes with every event of each
}

// Settings may change while requests run.
type Settings struct {
	Retries          int           // of one model, after the first try
	TryTimeout       time.Duration // until a provider's answer begins
	StallTimeout     time.Duration // between two pieces of an answer
	RequestTimeout   time.Duration // for all tries and the whole answer
	OwnKeyFee        int64         // millionths of a model's price, for a workspace that calls it with its own key
	DefaultMaxTokens int64         // of output, for callers that name none and workspaces that set none; 0 for the model's own
}

// A Gateway serves inference.
type Gateway struct {
	Config
	settings atomic.Pointer[Settings]
	counting chan struct{} // room for those who count with a tokenizer: most of the machine is for the road
	runs     runs
	running  atomic.Int64
	lines    *limit.Windows[string] // of the log, about failures

	pingEvery time.Duration // that a stream is quiet
}

// New is a gateway with settings that the first Apply sets.
func New(c Config) *Gateway {
	g := &Gateway{Config: c, counting: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4)), lines: limit.NewWindows[string](1, 10*time.Second), pingEvery: 15 * time.Second}
	g.settings.Store(&Settings{})
	return g
}

// Apply puts settings in force for the requests that begin from now on.
func (g *Gateway) Apply(s Settings) { g.settings.Store(&s) }

// Running is how many requests are on their way.
func (g *Gateway) Running() int64 { return g.running.Load() }

// Abort ends every running request: those that have begun to answer say so in their stream.
func (g *Gateway) Abort() { g.runs.stop(errStopping) }

// A Writer takes an answer.
type Writer interface {
	Header() http.Header
	WriteHeader(status int)
	Send(p []byte) error // at once: nothing of it waits for more
	End(p []byte) error  // the same, and that nothing comes after it
}

// ServeChat answers POST /v1/chat/completions.
func (g *Gateway) ServeChat(w http.ResponseWriter, r *http.Request) error { return g.serve(Chat, w, r) }

// ServeEmbeddings answers POST /v1/embeddings.
func (g *Gateway) ServeEmbeddings(w http.ResponseWriter, r *http.Request) error {
	return g.serve(Embeddings, w, r)
}

// ServeRerank answers POST /v1/rerank.
func (g *Gateway) ServeRerank(w http.ResponseWriter, r *http.Request) error {
	return g.serve(Rerank, w, r)
}

// ServeResponses answers POST /v1/responses.
func (g *Gateway) ServeResponses(w http.ResponseWriter, r *http.Request) error {
	return g.serve(Responses, w, r)
}

// serve is the front end for net/http: it reads a request whole and hands it to the road. The body is at its end before
// the answer begins, so that net/http notices a caller who leaves.
func (g *Gateway) serve(e *Endpoint, w http.ResponseWriter, r *http.Request) error {
	edge.SkipAccessLog(r.Context())
	if err := checkLabels(r.Header); err != nil {
		return err
	}
	body, err := g.Bounds.Read(r, g.Bounds.Body.Load())
	if err != nil {
		return err
	}
	defer body.Release()
	ask := &Ask{Endpoint: e, Caller: edge.Caller(r.Context()), ID: edge.RequestID(r.Context()), Body: body.Bytes, Lease: body, Cache: edge.FirstValue(r.Header, "X-Service-Cache"), front: flushing{w}}
	ask.said = Labels{Tag: edge.FirstValue(r.Header, "X-Service-Tag"), Trace: edge.FirstValue(r.Header, "X-Service-Trace-Id"), Off: edge.FirstValue(r.Header, "X-Service-Log") == "off"}
	ask.Labels = &ask.said
	return g.Serve(r.Context(), ask, &ask.front)
}

// flushing is a Writer made of net/http's, as far as that can flush.
type flushing struct{ http.ResponseWriter }

func (f *flushing) Send(p []byte) error { return edge.Send(f.ResponseWriter, p) }

func (f *flushing) End(p []byte) error { return edge.End(f.ResponseWriter, p) }

func (f *flushing) TrySend() func(now time.Time, p []byte) bool {
	return edge.TrySend(f.ResponseWriter)
}
