package main

import (
	"slices"
	"time"
)

// A scenario is a kind of load.
type scenario struct {
	name     string
	says     string
	path     string
	kind     string // of model
	body     func(model string) []byte
	conns    int
	rate     float64
	latency  time.Duration
	interval time.Duration
	want     expectation
	also     []string // targets that are measured only where they are named
	repeats  int      // at most; 0 for as many as are asked for
}

const (
	chatPath  = "/v1/chat/completions"
	embedPath = "/v1/embeddings"

	streamChunks = 100
	streamEvents = streamChunks + 4 // the role, the end, the usage, [DONE]

	idleStreams = 10_000
)

var (
	whole    = expectation{text: "MOCK-OK"}
	streamed = expectation{text: `"content":" token"`, events: streamEvents}
	vector   = expectation{text: `"embedding":[`}
)

// scenarios are measured for every target, in turn.
var scenarios = []scenario{
	{
		name: "chat", says: "A short conversation, answered at once and whole; 64 connections.", path: chatPath,
		kind: "chat", body: chat(450, false), conns: 64, want: whole,
		also: []string{nameStandard, nameLogging, nameTails, nameLimits, nameSplit, nameGated},
	},
	{
		name: "prompt", says: "200 KB of prose, answered at once; 16 connections.", path: chatPath, kind: "chat",
		body: chat(200<<10, false), conns: 16, want: whole, also: []string{nameStandard, nameLogging},
	},
	{
		name: "escaped", says: "200 KB of JSON within JSON, dense with escapes; 16 connections.", path: chatPath,
		kind: "chat", body: quoted(200 << 10), conns: 16, want: whole, repeats: 3,
	},
	{
		name: "languages",
		says: "200 KB in Chinese, Russian, Spanish, and English with typographic quotes; 16 connections.",
		path: chatPath, kind: "chat", body: spoken(200 << 10), conns: 16, want: whole, repeats: 3,
	},
	{
		name: "embeddings", says: "A text to a vector of 1,536 numbers; 64 connections.", path: embedPath,
		kind: "embedding", body: embedding, conns: 64, want: vector, repeats: 3,
	},
	{
		name: "paced", says: "Streams of 100 chunks, 10 ms apart; 64 connections.", path: chatPath, kind: "chat",
		body: chat(450, true), conns: 64, interval: 10 * time.Millisecond, want: streamed, also: []string{nameStandard},
	},
	{
		name: "burst", says: "Streams of 100 chunks without a pause; 64 connections.", path: chatPath, kind: "chat",
		body: chat(450, true), conns: 64, want: streamed, also: []string{nameStandard, nameLogging},
	},
	{
		name: "rate",
		says: "1,000 requests a second, whatever becomes of the last ones, over a provider that takes 60 ms.",
		path: chatPath, kind: "chat", body: chat(450, false), conns: 512, rate: 1000, latency: 60 * time.Millisecond,
		want: whole, also: []string{nameDirect},
	},
}

// The scenarios that are not measured like the others.
const (
	idle   = "idle"
	growth = "growth"
)

// names are all scenarios that there are.
func names() []string {
	var all []string
	for i := range scenarios {
		all = append(all, scenarios[i].name)
	}
	return append(all, idle, growth, scale)
}

// grown are servers that know more and more.
var grown = []sizes{
	tenKeys,
	{name: "a million keys", keys: 1_000_000, aliases: 10, workspaces: 1},
	{name: "100,000 aliases", keys: 10, aliases: 100_000, workspaces: 1},
	{name: "100,000 workspaces", keys: 100_000, aliases: 100_000, workspaces: 100_000},
}

// chatScenario is the load of the growing servers.
func chatScenario() *scenario {
	return &scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == "chat" })]
}
