package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFaultsAreWhatTheySay(t *testing.T) {
	address := start(t)
	for model, c := range map[string]struct {
		stream string // "" or ,"stream":true
		err    error  // of reading the answer
		status int
		chunks int
		holds  string
		valid  bool // the answer is JSON
	}{
		"mock?reset":                        {err: syscall.ECONNRESET},
		"mock?reset_after=2":                {stream: `,"stream":true`, err: syscall.ECONNRESET, status: 200, chunks: 2},
		"mock?reset_after=0":                {stream: `,"stream":true`, err: syscall.ECONNRESET, status: 200},
		"mock?die_after=2":                  {stream: `,"stream":true`, err: io.ErrUnexpectedEOF, status: 200, chunks: 2},
		"mock?die_after=99":                 {stream: `,"stream":true`, err: io.ErrUnexpectedEOF, status: 200, chunks: 3},
		"mock?die_after=1":                  {err: io.ErrUnexpectedEOF, status: 200, holds: `"object":"chat.completion"`},
		"mock?end_after=2":                  {stream: `,"stream":true`, status: 200, chunks: 2},
		"mock?end_after=1":                  {status: 200, holds: `"object":"chat.completion"`},
		"mock?garbage":                      {status: 200, holds: "\x00"},
		"mock?garbage&split=5":              {stream: `,"stream":true`, status: 200, holds: "\x00"},
		"mock?garbage_after=1":              {stream: `,"stream":true`, status: 200, chunks: 1, holds: "\x00"},
		"mock?error_event_after=2":          {stream: `,"stream":true`, status: 200, chunks: 2, holds: `data: {"error":{`},
		"mock?error_event_after=0&text=1":   {status: 200, holds: `{"error":{`, valid: true},
		"mock?status=422":                   {status: 422, holds: `"message":"the provider refuses with 422","param":null,"type":"invalid_request_error"`, valid: true},
		"mock?status=429":                   {stream: `,"stream":true`, status: 429, holds: `rate_limit_error`, valid: true},
		"mock?status=503":                   {status: 503, holds: `server_error`, valid: true},
		"mock?fail_first=1":                 {status: 500, valid: true},
		"mock?misspelt":                     {status: 400, holds: "unknown parameter misspelt", valid: true},
		"mock?status=299":                   {status: 400, holds: "status", valid: true},
		"mock?chunks=-1":                    {status: 400, holds: "negative", valid: true},
		"mock?usage=much":                   {status: 400, holds: "must be one of", valid: true},
		"mock?hang&reset":                   {status: 400, holds: "one fault is enough", valid: true},
		"gpt-4o":                            {status: 404, holds: "model_not_found", valid: true},
		"mock?refuse_stream_options":        {status: 200, holds: "every", valid: true},
		"mock?refuse_stream_options&text=1": {stream: `,"stream":true,"stream_options":{}`, status: 400, holds: `"param":"stream_options"`, valid: true},
		"mock?text=2":                       {stream: `,"max_tokens":0`, status: 400, holds: `"param":"max_tokens"`, valid: true},
		"mock?text=3":                       {stream: `,"n":129`, status: 400, holds: `"param":"n"`, valid: true},
		"mock?text=4":                       {stream: `,"messages":7`, status: 400, holds: "the body is not what it should be", valid: true},
	} {
		t.Run(model+c.stream, func(t *testing.T) {
			response, text, err := send(t, t.Context(), address, "/v1/chat/completions", chat(model, c.stream))
			status := 0
			if response != nil {
				status = response.StatusCode
			}
			if !errors.Is(err, c.err) || (err != nil) != (c.err != nil) || status != c.status || !strings.Contains(text, c.holds) || json.Valid([]byte(text)) != c.valid {
				t.Errorf("%d %v:\n%s", status, err, text)
			}
			if strings.Contains(c.stream, `"stream":true`) {
				if got := strings.Count(text, `"delta":{"content":"`); got != c.chunks || strings.Contains(text, "[DONE]") || strings.Contains(text, `"stop"`) {
					t.Errorf("%d chunks in\n%s", got, text)
				}
			}
			all := records(t, address)
			last := all[len(all)-1]
			refused := c.status >= 400
			whole := strings.Contains(text, `"stop"`)
			if last.Status != c.status || last.Finished != (refused || whole) || last.CancelledAt != nil || last.ChunksSent != c.chunks {
				t.Errorf("recorded: status %d, finished %t, cancelled %v, %d chunks", last.Status, last.Finished, last.CancelledAt, last.ChunksSent)
			}
		})
	}
}

func TestTheFirstRequestsOfABodyFailAndLaterOnesDoNot(t *testing.T) {
	address := start(t)
	for _, body := range []string{chat("mock?status=429&retry_after=7&should_retry=true&fail_first=2", ""), chat("mock?reset&fail_first=2", `,"user":"b"`)} {
		for try := range 4 {
			response, text, err := send(t, t.Context(), address, "/v1/chat/completions", body)
			failed := err != nil || response.StatusCode != http.StatusOK
			if failed != (try < 2) {
				t.Errorf("try %d of %s: %s %v", try, body, text, err)
			}
			if try < 2 && err == nil && (response.Header.Get("Retry-After") != "7" || response.Header.Get("X-Should-Retry") != "true") {
				t.Error(response.Header)
			}
		}
	}
	if got := len(records(t, address)); got != 8 {
		t.Errorf("%d records", got)
	}
	if _, _, err := send(t, t.Context(), address, "/log/reset", ""); err != nil || len(records(t, address)) != 0 {
		t.Error(err)
	}
	if response, _, _ := send(t, t.Context(), address, "/v1/chat/completions", chat("mock?status=429&retry_after=7&should_retry=true&fail_first=2", "")); response.StatusCode != http.StatusTooManyRequests {
		t.Error("a reset does not forget what was tried")
	}
}

func TestAClientThatLeavesIsNoticed(t *testing.T) {
	address := start(t)
	for model, stream := range map[string]string{
		"mock?hang":                       "",
		"mock?latency=1m":                 "",
		"mock?hang_after=2":               `,"stream":true`,
		"mock?chunks=2&chunk_delay=1m":    `,"stream":true`,
		"mock?chunks=1000&chunk_delay=1s": `,"stream":true`,
		"mock?hang_after=1":               "",
	} {
		t.Run(model, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before := len(records(t, address))
			go func() {
				for len(records(t, address)) == before {
					time.Sleep(time.Millisecond)
				}
				time.AfterFunc(50*time.Millisecond, cancel)
			}()
			if _, _, err := send(t, ctx, address, "/v1/chat/completions", chat(model, stream)); err == nil {
				t.Fatal("it answered")
			}
			var last record
			eventually(t, func() bool {
				all := records(t, address)
				last = all[len(all)-1]
				return last.CancelledAt != nil
			})
			if last.Finished || last.ChunksSent == 1000 {
				t.Errorf("finished %t, %d chunks", last.Finished, last.ChunksSent)
			}
		})
	}
}

func TestLatencyAndDelaysAreKept(t *testing.T) {
	address := start(t)
	began := time.Now()
	if _, text, err := send(t, t.Context(), address, "/v1/chat/completions", chat("mock?latency=30ms&chunks=4&chunk_delay=20ms", `,"stream":true`)); err != nil || !strings.Contains(text, "[DONE]") {
		t.Fatal(text, err)
	}
	if took := time.Since(began); took < 90*time.Millisecond {
		t.Error(took)
	}
}

func TestNothingIsAnsweredWithoutTheKeyAndAllIsRecorded(t *testing.T) {
	address := start(t)
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings", "/v1/nothing"} {
		response, err := http.Post(address+path, "application/json", strings.NewReader(chat("mock", "")))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized || response.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	all := records(t, address)
	if len(all) != 3 || all[0].Body != chat("mock", "") || all[0].Header.Get("Content-Type") != "application/json" || all[0].Header.Get("Host") == "" || all[0].Path != "/v1/chat/completions" {
		t.Errorf("%+v", all)
	}
}

func TestTheLogIsBounded(t *testing.T) {
	l := newLog()
	for range maxRecords + 5 {
		l.add(&record{Path: "small"})
	}
	if got := len(l.all()); got != maxRecords {
		t.Errorf("%d records", got)
	}
	l.add(&record{Path: "big", Body: strings.Repeat("x", maxBodies-1)})
	l.add(&record{Path: "bigger", Body: "xx"})
	if all := l.all(); len(all) != 1 || all[0].Path != "bigger" || l.bodies != 2 {
		t.Errorf("%d records of %d bytes", len(all), l.bodies)
	}
	for i := range maxRemember + 10 {
		l.try(string(rune(i)))
	}
	if len(l.tries) > maxRemember {
		t.Errorf("%d bodies remembered", len(l.tries))
	}
}

func TestExamplesSatisfyTheirSchemas(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"]}`:                  `{"a":"text"}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"$defs":{"x":{"enum":["one","two"]}}}`: `{"a":"one"}`,
		`{"type":"array","items":{"type":"boolean"},"minItems":2}`:                                                        `[true,true]`,
		`{"type":["null","string"],"minLength":6}`:                                                                        `"textxx"`,
		`{"type":"number","minimum":0.5}`:                                                                                 `1`,
		`{"type":"integer","exclusiveMinimum":3}`:                                                                         `4`,
		`{"type":"integer","maximum":-2}`:                                                                                 `-2`,
		`{"anyOf":[{"type":"null"},{"type":"string"}]}`:                                                                   `null`,
		`{"properties":{"a":{"const":7}},"required":["a"],"examples":[{"a":7}]}`:                                          `{"a":7}`,
		`{"type":"object","properties":{"self":{"$ref":"#"}},"required":[]}`:                                              `{}`,
		`{"allOf":[{"type":"object","required":["x"],"properties":{"x":{"type":"object"}}}]}`:                             `{"x":{}}`,
	} {
		var parsed map[string]any
		if err := json.Unmarshal([]byte(schema), &parsed); err != nil {
			t.Fatal(err)
		}
		if got := encode(example(parsed)); got != want {
			t.Errorf("%s: %s", schema, got)
		}
	}
	endless := map[string]any{"type": "object", "required": []any{"self"}, "properties": map[string]any{"self": map[string]any{"$ref": "#"}}}
	if got := encode(example(endless)); len(got) > 1000 {
		t.Error(got)
	}
}

func FuzzAnyModelNameIsAPlanOrARefusal(f *testing.F) {
	f.Add("mock?chunks=5&tool&usage=over")
	f.Add("mock?hang_after=%zz")
	f.Add("?&&=")
	f.Fuzz(func(t *testing.T, model string) {
		p, err := parsePlan(model)
		if err == nil && (p.chunks < 0 || p.after < atOnce || p.fault != "" && faults[p.fault] == nil) {
			t.Errorf("%q: %+v", model, p)
		}
	})
}
