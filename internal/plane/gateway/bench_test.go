package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/till"
	"sovereign/internal/wire/upstream"
)

// discard is a Writer that drops the answer.
type discard struct{ header http.Header }

func (n *discard) Header() http.Header { return n.header }
func (n *discard) WriteHeader(int)     {}
func (n *discard) Send([]byte) error   { return nil }
func (n *discard) End([]byte) error    { return nil }

// pieces is a body that implements fastpath.ChunkReader.
type pieces struct {
	all [][]byte
	strings.Reader
}

func (p *pieces) Next() ([]byte, error) {
	if len(p.all) == 0 {
		return p.end()
	}
	next := p.all[0]
	p.all = p.all[1:]
	return next, nil
}

func (p *pieces) end() ([]byte, error) {
	_, err := p.ReadByte() // of nothing
	return nil, err
}

func (p *pieces) Close() error { return nil }

// journalOnDisk gives the gateway a journal in a folder of its own.
func (b *bench) journalOnDisk() {
	b.t.Helper()
	folder, err := journal.Folder(b.t.TempDir())
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := journal.Open(folder)
	if err == nil {
		err = j.Begin()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.Till = till.New(b.funds, j, b.Log, b.Metrics.Excess, b.Metrics.Overage)
}

// The gateway alone, without sockets: what one request costs.
func BenchmarkServe(b *testing.B) {
	fixture := newBench(b)
	fixture.journalOnDisk()
	fixture.Aliases.Put(home, &live.Alias{Name: "fast", Target: "m"})
	answer := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1760000000,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 60) +
		`","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":120,"completion_tokens":60,"total_tokens":180,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"system_fingerprint":"fp_mock"}`)
	chunk := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1760000000,"model":"gpt-4o-mini","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
	last := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1760000000,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":100,"total_tokens":220}}` + "\n\ndata: [DONE]\n\n"
	prompt := func(size int, more string) []byte {
		return fmt.Appendf(nil, `{"model":"fast","temperature":0.7,"max_tokens":256,%s"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":%q}]}`, more, strings.Repeat("A gateway reads the request. ", size/29))
	}
	for _, c := range []struct {
		name string
		body []byte
		kind string
		all  [][]byte
	}{
		{"chat", prompt(500, ""), "application/json", [][]byte{answer}},
		{"prompt", prompt(200<<10, ""), "application/json", [][]byte{answer}},
		{"stream", prompt(500, `"stream":true,"stream_options":{"include_usage":true},`), "text/event-stream", append(repeated([]byte(chunk), 100), []byte(last))},
		{"stream hiding usage", prompt(500, `"stream":true,`), "text/event-stream", append(repeated([]byte(chunk), 100), []byte(last))},
	} {
		b.Run(c.name, func(b *testing.B) {
			fixture.funds.Credit(home, 1<<60)
			fixture.answer = func(*upstream.Request) (*upstream.Response, error) {
				r := &upstream.Response{Status: http.StatusOK, ContentType: c.kind, Body: &pieces{all: c.all}}
				if len(c.all) == 1 {
					r.Length = int64(len(c.all[0]))
				}
				return r, nil
			}
			b.ReportAllocs()
			for b.Loop() {
				fixture.sent = fixture.sent[:0]
				ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_1", Body: c.body}
				if err := fixture.Serve(context.Background(), ask, &discard{header: http.Header{}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func repeated(piece []byte, n int) (all [][]byte) {
	for range n {
		all = append(all, piece)
	}
	return all
}
