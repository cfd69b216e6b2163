package gateway

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/meter"
)

// nowhere is a http.ResponseWriter that drops the answer.
type nowhere struct{ discard }

func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }

// replay is a body that is read again and again.
type replay struct{ bytes.Reader }

func (r *replay) Close() error { return nil }

// What limits cost: the edge and the gateway without sockets, for a short chat. Nobody has limits; others have; all of
// them are set, for the key and for its workspace.
func BenchmarkLimits(b *testing.B) {
	every := &live.Limits{
		RequestsPerMinute: math.MaxInt32 << 20, TokensPerMinute: math.MaxInt32 << 20, Concurrency: 100, BudgetPerDay: 1 << 60,
		BudgetPerMonth: 1 << 60, Models: live.ModelNames{"m", "fast"}, ExpiresAt: clock.Now().Add(time.Hour), Addresses: addresses("127.0.0.0/8"),
	}
	for _, c := range []struct {
		name   string
		limits map[string]*live.Limits
	}{
		{"none", nil},
		{"of others", map[string]*live.Limits{"key_2": every, "ws_2": every}},
		{"all", map[string]*live.Limits{"key_1": every, string(home): every}},
	} {
		b.Run(c.name, func(b *testing.B) {
			limits := live.NewLimits()
			limits.Replace(c.limits)
			m := meter.New(limits)
			for id := range c.limits {
				m.Begin(id, time.Now())
			}
			benchmarkChat(b, limits, m)
		})
	}
}

func benchmarkChat(b *testing.B, limits *live.AllLimits, m *meter.Meter) {
	fixture := newBench(b)
	fixture.journalOnDisk()
	fixture.funds.Credit(home, 1<<60)
	fixture.Aliases.Put(home, &live.Alias{Name: "fast", Target: "m"})
	fixture.Meter = m
	fixture.Bounds.Timeout.Store(int64(time.Minute))
	fixture.answer = whole(good)
	directory := live.NewDirectory()
	key, digest, _ := apikey.New()
	directory.PutKey(digest, live.Key{ID: "key_1", Workspace: home, User: member.User})
	directory.PutMember(member, tenant.Member)
	handler := edge.New(edge.Config{Directory: directory, Limits: limits, Bounds: fixture.Bounds, Log: fixture.Log},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := fixture.ServeChat(w, r); err != nil {
				b.Fatal(err)
			}
		}))
	body := &replay{}
	text := []byte(`{"model":"fast","temperature":0.7,"max_tokens":256,"messages":[{"role":"user","content":"A gateway reads the request."}]}`)
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/chat/completions", io.NopCloser(body))
	if err != nil {
		b.Fatal(err)
	}
	request.RemoteAddr, request.ContentLength = "127.0.0.1:1234", int64(len(text))
	request.Header["Authorization"], request.Header["Content-Type"] = []string{"Bearer " + key.Reveal()}, []string{"application/json"}
	out := &nowhere{discard{header: http.Header{}}} // the fast lane too keeps it for a connection's requests
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		fixture.sent = fixture.sent[:0]
		body.Reset(text)
		clear(out.header)
		handler.ServeHTTP(out, request)
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime returns the CPU time of this process. Other work on the machine disturbs it less than it does the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
