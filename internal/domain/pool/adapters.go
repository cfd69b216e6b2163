package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/plane/engines"
)

// An adapterCache is what one engine has loaded beside its base model: as many versions as it has places. What is used
// stays; of the others, the least recently used makes room. A restarted engine is another replica, with an empty cache.
type adapterCache struct {
	slots  int
	engine loader

	mu      sync.Mutex
	state   cacheState
	loaded  map[string]*adapter
	changed chan struct{} // closed and replaced when anything here changes
	uses    int64
}

// A cacheState is whether an engine can be asked to load something.
type cacheState int

const (
	unknown  cacheState = iota // it may hold what an earlier server loaded
	clearing                   // that is being unloaded
	open
	ended // the engine has
)

// An adapter is a version that is loaded, or on its way.
type adapter struct {
	moving  bool // it is being loaded or unloaded
	users   int
	used    int64 // when it was last used, in uses of the cache
	err     error // why it could not be loaded
	release func()
}

// A loader loads versions into an engine.
type loader interface {
	// clear unloads what the engine holds of an earlier server.
	clear(ctx context.Context) error
	// load loads a version. The function that it returns lets go of what the version's files take.
	load(ctx context.Context, versionID string) (release func(), err error)
	unload(ctx context.Context, versionID string) error
}

// loadTimeout bounds one call of a loader. The call continues when the request that began it has ended.
const loadTimeout = 5 * time.Minute

func newAdapterCache(slots int, engine loader) *adapterCache {
	return &adapterCache{slots: slots, engine: engine, loaded: map[string]*adapter{}, changed: make(chan struct{})}
}

// use loads a version unless it is there, and keeps it until done is called. It waits while every place is in use.
func (s *adapterCache) use(ctx context.Context, versionID string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for awaited := (*adapter)(nil); ; {
		b := s.loaded[versionID]
		switch oldest := s.unused(); {
		case s.state == ended:
			return nil, errEnded
		case awaited != nil && awaited.err != nil:
			return nil, awaited.err
		case s.state == unknown:
			awaited = &adapter{}
			s.clear(awaited) //nolint:contextcheck // it goes on when the request has left
		case s.state == clearing:
		case b != nil && !b.moving:
			s.uses++
			b.users, b.used = b.users+1, s.uses
			return func() { s.leave(b) }, nil
		case b != nil:
			awaited = b
		case len(s.loaded) < s.slots:
			awaited = s.load(versionID) //nolint:contextcheck // it goes on when the request has left
		case oldest != "":
			s.unload(oldest) //nolint:contextcheck // it goes on when the request has left
		}
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
}

var errEnded = errors.New("the engine has ended")

// move calls a loader without the lock, and then lets f note what became of it. The caller holds the lock, as of the
// methods below.
func (s *adapterCache) move(call func(ctx context.Context) error, f func(err error)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
		defer cancel()
		err := call(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		f(err)
		s.tell()
	}()
}

// clear empties the engine. Where that fails, the request that asked for it does too, and the next one tries again.
func (s *adapterCache) clear(asked *adapter) {
	s.state = clearing
	s.move(s.engine.clear, func(err error) {
		if s.state == ended {
			return
		}
		if asked.err, s.state = err, open; err != nil {
			s.state = unknown
		}
	})
}

func (s *adapterCache) load(versionID string) *adapter {
	b := &adapter{moving: true}
	s.loaded[versionID] = b
	var release func()
	s.move(func(ctx context.Context) (err error) {
		release, err = s.engine.load(ctx, versionID)
		return err
	}, func(err error) {
		b.moving, b.err, b.release = false, err, release
		if err != nil {
			delete(s.loaded, versionID)
		} else if s.state == ended {
			release()
		}
	})
	return b
}

// unused returns the version that was not used for the longest time; empty if all are in use.
func (s *adapterCache) unused() (oldest string) {
	for id, b := range s.loaded {
		if !b.moving && b.users == 0 && (oldest == "" || b.used < s.loaded[oldest].used) {
			oldest = id
		}
	}
	return oldest
}

// unload makes room. A version that the engine does not let go of stays, and is asked for again.
func (s *adapterCache) unload(versionID string) {
	b := s.loaded[versionID]
	b.moving = true
	s.move(func(ctx context.Context) error { return s.engine.unload(ctx, versionID) }, func(err error) {
		b.moving = false
		if err == nil || s.state == ended {
			delete(s.loaded, versionID)
			b.release()
		}
	})
}

func (s *adapterCache) wait(ctx context.Context) error {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *adapterCache) leave(b *adapter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.users--; b.users == 0 && s.state == ended {
		b.release()
	}
	s.tell()
}

func (s *adapterCache) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// end lets go of everything that is not in use, when the engine has ended. The rest follows.
func (s *adapterCache) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = ended
	for _, b := range s.loaded {
		if !b.moving && b.users == 0 {
			b.release()
		}
	}
	s.tell()
}

// prepare has a replica load the model that a request is for.
func (p *Pool) prepare(ctx context.Context, u *unit, r engines.Replica, model string) (func(), error) {
	if model == u.base {
		return func() {}, nil
	}
	if p.pins != nil {
		done, err := p.pins.use(ctx, r, model)
		if err != nil && ctx.Err() == nil {
			p.Log.Warn("an engine cannot load a trained model", "version", model, "replica", r.ID, "err", err)
		}
		return done, err
	}
	u.mu.Lock()
	s := u.loaded[r.ID]
	if s == nil {
		s = newAdapterCache(p.Slots, &remote{pool: p, base: r.BaseURL})
		u.loaded[r.ID] = s
	}
	u.mu.Unlock()
	done, err := s.use(ctx, model)
	if err != nil && ctx.Err() == nil {
		p.Log.Warn("an engine cannot load a trained model", "version", model, "replica", r.ID, "err", err)
	}
	return done, err
}

// A remote loads versions into an engine, by vLLM's API.
type remote struct {
	pool *Pool
	base string // of its API
}

// adapters is the client of engines. The backend says where they are, so that no proxy and no redirect leads elsewhere.
var adapters = &http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       loadTimeout,
}

// clear implements loader.
func (r *remote) clear(ctx context.Context) error {
	all, err := r.list(ctx)
	for _, id := range all {
		err = errors.Join(err, r.unload(ctx, id))
	}
	return err
}

// list returns the versions that the engine holds.
func (r *remote) list(ctx context.Context) (ids []string, err error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	text, err := r.call(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the models of an engine: %w", err)
	}
	for _, m := range list.Data {
		if strings.HasPrefix(m.ID, "mv_") {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}

// load implements loader.
func (r *remote) load(ctx context.Context, versionID string) (func(), error) {
	r.pool.mu.Lock()
	v := r.pool.versions[versionID]
	r.pool.mu.Unlock()
	if v == nil {
		return nil, fault.ModelNotFound.New("the model version %s was deleted", versionID)
	}
	folder, release, err := r.pool.Folders.Get(ctx, v.WorkspaceID, versionID)
	if err != nil {
		return nil, err
	}
	if _, err = r.call(ctx, http.MethodPost, "/load_lora_adapter", map[string]string{
		"lora_name": versionID, "lora_path": folder,
	}); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// unload implements loader.
func (r *remote) unload(ctx context.Context, versionID string) error {
	_, err := r.call(ctx, http.MethodPost, "/unload_lora_adapter", map[string]string{"lora_name": versionID})
	return err
}

// call calls an engine. A nil body is none.
func (r *remote) call(ctx context.Context, method, path string, body map[string]string) ([]byte, error) {
	var sent io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("write a request: %w", err)
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, r.base+path, sent)
	if err != nil {
		return nil, fmt.Errorf("call an engine: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := adapters.Do(request)
	if err != nil {
		return nil, fmt.Errorf("call an engine: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read an engine's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the engine answers %s to %s: %.300s", response.Status, path, answer)
	}
	return answer, nil
}
