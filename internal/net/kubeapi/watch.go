package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Mirror holds the objects of one kind, as they were when the API server last told.
type Mirror struct {
	client  *Client
	kind    Kind
	wanted  func(Object) bool // which objects it holds
	changed func(Object)      // called after the mirror has changed
	report  func(error)       // called when a list or a watch failed, and with nil when one works again

	mu     sync.Mutex
	all    map[string]Object
	synced chan struct{} // closed after the first list
}

// Mirror returns a mirror of the objects that are wanted. It is empty until it runs. Objects are not selected by a
// label: removing the label would hide them.
func (c *Client) Mirror(k Kind, wanted func(Object) bool, changed func(Object), report func(error)) *Mirror {
	return &Mirror{
		client: c, kind: k, wanted: wanted, changed: changed, report: report, all: map[string]Object{},
		synced: make(chan struct{}),
	}
}

// Add adds an object that was just made, unless the mirror has it, so that the caller does not make it again before the
// watch reports it.
func (m *Mirror) Add(o Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.all[o.Meta.Name]; !ok {
		m.all[o.Meta.Name] = o
	}
}

// Synced is closed when the mirror has what is in the cluster.
func (m *Mirror) Synced() <-chan struct{} { return m.synced }

// All returns the objects by their names.
func (m *Mirror) All() map[string]Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.all)
}

// Find returns the object of a name.
func (m *Mirror) Find(name string) (Object, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.all[name]
	return o, ok
}

// Times between attempts to reach an API server that does not answer.
const (
	leastPause = 200 * time.Millisecond
	mostPause  = 30 * time.Second
)

// Run keeps the mirror up to date until ctx ends.
func (m *Mirror) Run(ctx context.Context) {
	pause := leastPause
	version := "" // empty: list first
	for ctx.Err() == nil {
		var err error
		if version == "" {
			version, err = m.list(ctx)
		} else {
			version, err = m.watch(ctx, version)
		}
		if ctx.Err() != nil {
			return
		}
		m.report(err)
		if err == nil {
			pause = leastPause
			continue
		}
		wait := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		pause = min(2*pause, mostPause)
	}
}

// pageSize is how many objects are asked for at once.
const pageSize = 500

// list reads all objects, and returns the version from which changes follow.
func (m *Mirror) list(ctx context.Context) (version string, err error) {
	found := map[string]Object{}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var page struct {
			Meta struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []Object `json:"items"`
		}
		err := m.client.call(ctx, http.MethodGet, m.kind.path(m.client.cluster.Namespace), query, "", nil, &page)
		if err != nil {
			return "", fmt.Errorf("list %s: %w", m.kind.Plural, err)
		}
		for _, o := range page.Items {
			if m.wanted(o) {
				found[o.Meta.Name] = o
			}
		}
		if page.Meta.Continue == "" {
			m.replace(found)
			return page.Meta.ResourceVersion, nil
		}
		query.Set("continue", page.Meta.Continue)
	}
}

// replace makes the mirror what a list has found.
func (m *Mirror) replace(found map[string]Object) {
	m.mu.Lock()
	before := m.all
	m.all = found
	m.mu.Unlock()
	select {
	case <-m.synced:
	default:
		close(m.synced)
	}
	for name, o := range found {
		if before[name].Meta.ResourceVersion != o.Meta.ResourceVersion {
			m.changed(o)
		}
	}
	for name, o := range before {
		if _, ok := found[name]; !ok {
			m.changed(o)
		}
	}
}

// watchTime is after which time the API server ends a watch. Then everything is listed again: what was missed, if
// something ever is, is found.
const watchTime = 4 * time.Minute

// watch follows the changes after a version, and returns the version that it has come to: a watch that broke goes on
// there. It is empty when everything is to be listed again, as when the API server does not know the changes any more.
func (m *Mirror) watch(ctx context.Context, version string) (reached string, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+requestTime)
	defer cancel()
	query := url.Values{
		"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(watchTime.Seconds()))},
	}
	answer, err := m.client.do(ctx, http.MethodGet, m.kind.path(m.client.cluster.Namespace), query, "", nil)
	switch {
	case Is(err, http.StatusGone):
		return "", nil
	case err != nil:
		return version, fmt.Errorf("watch %s: %w", m.kind.Plural, err)
	}
	defer func() { _ = answer.Body.Close() }()
	m.report(nil)
	events := jsontext.NewDecoder(answer.Body)
	for {
		var event struct {
			Type   string         `json:"type"`
			Object jsontext.Value `json:"object"`
		}
		switch err := json.UnmarshalDecode(events, &event); {
		case errors.Is(err, io.EOF):
			return "", nil
		case err != nil:
			return version, fmt.Errorf("watch %s: %w", m.kind.Plural, err)
		}
		if event.Type == "ERROR" {
			refusal := &Error{}
			if json.Unmarshal(event.Object, refusal) == nil && refusal.Code == http.StatusGone {
				return "", nil
			}
			return "", fmt.Errorf("watch %s: %w", m.kind.Plural, refusal)
		}
		var o Object
		if err := json.Unmarshal(event.Object, &o); err != nil {
			return version, fmt.Errorf("read a change of %s: %w", m.kind.Plural, err)
		}
		version = o.Meta.ResourceVersion
		m.note(event.Type, o)
	}
}

// note takes a change.
func (m *Mirror) note(kind string, o Object) {
	if kind == "BOOKMARK" {
		return
	}
	m.mu.Lock()
	_, had := m.all[o.Meta.Name]
	has := kind != "DELETED" && m.wanted(o)
	if has {
		m.all[o.Meta.Name] = o
	} else {
		delete(m.all, o.Meta.Name)
	}
	m.mu.Unlock()
	if had || has {
		m.changed(o)
	}
}
