package gateway

import (
	"context"
	secret "crypto/rand"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/spool"
)

// What a gate costs the gateway: a short chat through a split that is logged, without a gate and with one that draws
// every request. Journal and spool are on the disk.
func BenchmarkGate(b *testing.B) {
	for _, c := range []struct {
		name string
		gate *live.Gate
	}{
		{"none", nil},
		{"drawing", &live.Gate{Epoch: id.New("epoch"), Stratum: 1, Key: secret.Text(), SamplePercent: 100}},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkGate(b, c.gate) })
	}
}

func benchmarkGate(b *testing.B, gate *live.Gate) {
	b.Helper()
	fixture := newBench(b, model("m"), model("n"))
	fixture.journalOnDisk()
	folder, err := journal.Folder(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	rows, err := spool.Open(folder, spool.Position{}, 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	fixture.funds.Credit(home, 1<<60)
	fixture.Recorder, fixture.Random = capture.NewRecorder(fixture.Workspaces, rows), rand.Float64
	fixture.Workspaces.Put(home, live.Settings{LogDays: 30})
	fixture.Aliases.Put(home, &live.Alias{Name: "fast", Target: "m", Canary: "n", CanaryPercent: 50, Gate: gate})
	fixture.answer = whole(strings.Replace(good, "hello", strings.Repeat("word ", 60), 1))
	body := []byte(`{"model":"fast","messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"` +
		strings.Repeat("A gateway reads the request. ", 15) + `"}]}`)
	const batch = 1000 // requests, after which the spool is emptied
	b.ReportAllocs()
	before := cpuTime(b)
	for n := 0; b.Loop(); n++ {
		fixture.sent = fixture.sent[:0]
		q := &request.Request{
			Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: id.New("req"), Body: body,
			Annotations: &request.Annotations{},
		}
		if err := fixture.Serve(context.Background(), q, &discard{header: http.Header{}}); err != nil {
			b.Fatal(err)
		}
		if n%batch == 0 {
			if err := rows.Forget(rows.End().Segment); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}
