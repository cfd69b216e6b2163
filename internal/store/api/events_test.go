package api_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// A source is events for one stream.
type source struct {
	wake   chan struct{}
	events chan api.Event
	over   atomic.Bool
	closed chan struct{}
}

func newSource() *source {
	return &source{wake: make(chan struct{}, 1), events: make(chan api.Event, 10), closed: make(chan struct{})}
}

func (s *source) Wake() <-chan struct{} { return s.wake }
func (s *source) Close()                { close(s.closed) }

func (s *source) Over() string {
	if s.over.Load() {
		return "it_is_over"
	}
	return ""
}

func (s *source) Take() (all []api.Event) {
	for {
		select {
		case e := <-s.events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (s *source) put(e api.Event) {
	s.events <- e
	s.wake <- struct{}{}
}

// A streaming is a server with one stream, and a caller that reads it.
type streaming struct {
	*source
	bounds    *edge.Bounds
	directory *live.Directory
	digest    apikey.Digest
	closing   atomic.Bool
	leave     context.CancelFunc
	lines     *bufio.Scanner
}

func newStreaming(t *testing.T, d *db.DB) *streaming {
	t.Helper()
	s := &streaming{source: newSource(), bounds: edge.NewBounds(), directory: live.NewDirectory()}
	s.bounds.Body.Store(64 << 10)
	s.bounds.Buffered.Set(1 << 20)
	s.bounds.Operations.Set(1)
	s.bounds.Timeout.Store(int64(time.Minute))
	log := slog.New(slog.DiscardHandler)
	router, err := api.NewRouter(api.Config{
		DB: d, Feed: feed.New(d, log, nil), Bounds: s.bounds, Log: log, Closing: s.closing.Load,
	}, []api.Route{api.Get("/events", api.Reader, func(context.Context, tenant.Caller, api.None) (api.EventStream, error) {
		return api.EventStream{Source: s.source}, nil
	}, "Events", api.Long, api.Produces(api.EventStreamType))})
	if err != nil {
		t.Fatal(err)
	}
	key, digest, _ := apikey.New()
	s.digest = digest
	s.directory.PutKey(digest, live.Key{ID: "key_1", Workspace: "ws_a", User: "usr_1"})
	s.directory.PutMember(live.Member{Workspace: "ws_a", User: "usr_1"}, tenant.Member)
	server := httptest.NewServer(edge.New(edge.Config{Directory: s.directory, Bounds: s.bounds, Log: log}, router))
	t.Cleanup(server.Close)
	ctx, leave := context.WithCancel(t.Context())
	s.leave = leave
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key.Reveal())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != api.EventStreamType {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%d %s", answer.StatusCode, text)
	}
	s.lines = bufio.NewScanner(answer.Body)
	return s
}

// next returns the next event, or an empty text at the end.
func (s *streaming) next() string {
	var lines []string
	for s.lines.Scan() {
		switch line := s.lines.Text(); {
		case line == "" && len(lines) > 0:
			return strings.Join(lines, " | ")
		case line != "" && line != ":":
			lines = append(lines, line)
		}
	}
	return ""
}

func (s *streaming) wants(t *testing.T, event string) {
	t.Helper()
	if got := s.next(); got != event {
		t.Errorf("%q, want %q", got, event)
	}
}

func TestEventsAreSentAsTheyComeAndCountAsNoOperation(t *testing.T) {
	d := dbtest.Migrated(t, db.SQLite)
	s := newStreaming(t, d)
	s.put(api.Event{Name: "log", ID: "log_1", Data: map[string]string{"text": "a\nb\r"}})
	s.wants(t, `id: log_1 | event: log | data: {"text":"a\nb\r"}`)
	s.put(api.Event{Name: "dropped", Data: 3})
	s.wants(t, `event: dropped | data: 3`)
	if !s.bounds.Operations.Take(1) {
		t.Error("the stream is an operation")
	}
	s.leave()
	<-s.closed
}

func TestAStreamEndsWithItsReason(t *testing.T) {
	for reason, end := range map[string]func(*streaming){
		"it_is_over":    func(s *streaming) { s.over.Store(true) },
		"server_stops":  func(s *streaming) { s.closing.Store(true) },
		"session_ended": func(s *streaming) { s.directory.DropKey(s.digest) },
	} {
		t.Run(reason, func(t *testing.T) {
			s := newStreaming(t, dbtest.Migrated(t, db.SQLite))
			end(s)
			s.put(api.Event{Name: "log", Data: "must not be sent"})
			s.wants(t, `event: end | data: {"reason":"`+reason+`"}`)
			s.wants(t, "")
			<-s.closed
		})
	}
}
