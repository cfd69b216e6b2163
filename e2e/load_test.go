package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db/dbtest"
)

func TestBadBodiesAreRefusedClearlyAndNothingIsHeldOrSent(t *testing.T) {
	s, provider := gate(t, map[string]string{"chat": "mock", "embedding": "mock"}, "--limits-body", "4MiB", "--operations-listen", "127.0.0.1:0")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(bytes.Repeat([]byte(" "), 64<<20))
	_ = w.Close()
	many := strings.Repeat(`{"role":"user","content":"x"},`, 100_000)
	message := `"messages":[{"role":"user","content":"x"}]`
	for name, bad := range map[string]struct {
		body, encoding, path string
		status               int
		code, names          string
	}{
		"over the cap":        {body: chat("mock/chat", strings.Repeat("x", 5<<20)), status: 413, code: "body_too_large"},
		"a bomb":              {body: zipped.String(), encoding: "gzip", status: 415, code: "unsupported_media_type"},
		"zstd":                {body: "x", encoding: "zstd", status: 415, code: "unsupported_media_type"},
		"a thousand deep":     {body: `{"model":"mock/chat",` + message + `,"x":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, status: 400, code: "invalid_body", names: "nested"},
		"a million open":      {body: `{"model":"mock/chat","x":` + strings.Repeat("[", 1_000_000), status: 400, code: "invalid_body"},
		"a name twice":        {body: `{"model":"mock/chat","model":"mock/chat",` + message + `}`, status: 400, code: "invalid_body", names: "model"},
		"a name twice, coded": {body: `{"model":"mock/chat","mod\u0065l":"mock/chat",` + message + `}`, status: 400, code: "invalid_body", names: "model"},
		"a NUL":               {body: "{\"model\":\"mock/chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\x00b\"}]}", status: 400, code: "invalid_body"},
		"no UTF-8":            {body: "{\"model\":\"mock/chat\",\"messages\":[{\"role\":\"user\",\"content\":\"a\xffb\"}]}", status: 400, code: "invalid_body"},
		"many messages":       {body: `{"model":"mock/chat","messages":[` + strings.TrimSuffix(many, ",") + `]}`, status: 400, code: "invalid_parameter", names: "messages"},
		"no messages":         {body: `{"model":"mock/chat","messages":[]}`, status: 400, code: "invalid_parameter", names: "messages"},
		"messages missing":    {body: `{"model":"mock/chat"}`, status: 400, code: "invalid_parameter", names: "messages"},
		"messages of text":    {body: `{"model":"mock/chat","messages":"hi"}`, status: 400, code: "invalid_parameter", names: "messages"},
		"model missing":       {body: `{` + message + `}`, status: 400, code: "invalid_parameter", names: "model"},
		"model no text":       {body: `{"model":7,` + message + `}`, status: 400, code: "invalid_parameter", names: "model"},
		"a million choices":   {body: chat("mock/chat", "x", `"n":1000000`), status: 400, code: "invalid_parameter", names: "n"},
		"no choice":           {body: chat("mock/chat", "x", `"n":0`), status: 400, code: "invalid_parameter", names: "n"},
		"half a choice":       {body: chat("mock/chat", "x", `"n":1.5`), status: 400, code: "invalid_parameter", names: "n"},
		"negative maximum":    {body: chat("mock/chat", "x", `"max_tokens":-1`), status: 400, code: "invalid_parameter", names: "max_tokens"},
		"no maximum":          {body: chat("mock/chat", "x", `"max_completion_tokens":0`), status: 400, code: "invalid_parameter", names: "max_completion_tokens"},
		"a huge maximum":      {body: chat("mock/chat", "x", `"max_tokens":99999999999999999999`), status: 400, code: "invalid_parameter", names: "max_tokens"},
		"stream no boolean":   {body: chat("mock/chat", "x", `"stream":"yes"`), status: 400, code: "invalid_parameter", names: "stream"},
		"options no object":   {body: chat("mock/chat", "x", `"stream":true,"stream_options":7`), status: 400, code: "invalid_parameter", names: "stream_options"},
		"fallbacks no list":   {body: chat("mock/chat", "x", `"models":"mock/chat"`), status: 400, code: "invalid_parameter", names: "models"},
		"unknown fallback":    {body: chat("mock/chat", "x", `"models":["mock/chat","mock/none"]`), status: 400, code: "invalid_parameter", names: "models[1]"},
		"not a chat model":    {body: chat("mock/embedding", "x"), status: 400, code: "invalid_parameter", names: "model"},
		"no JSON":             {body: "hello", status: 400, code: "invalid_body"},
		"nothing":             {body: "", status: 400, code: "invalid_body"},
		"an array":            {body: "[]", status: 400, code: "invalid_body"},
		"goes on":             {body: chat("mock/chat", "x") + "{}", status: 400, code: "invalid_body"},
		"no such model":       {body: chat("mock/none", "x"), status: 404, code: "model_not_found"},
		"no such name":        {body: chat("none", "x"), status: 404, code: "model_not_found"},
		"no such provider":    {body: chat("nobody/none", "x"), status: 400, code: "unknown_provider"},
		"no such endpoint":    {body: chat("dedicated/none", "x"), status: 404, code: "dedicated_endpoint_not_found"},
		"input missing":       {body: `{"model":"mock/embedding"}`, path: "/v1/embeddings", status: 400, code: "invalid_parameter", names: "input"},
		"not for embeddings":  {body: `{"model":"mock/chat","input":"x"}`, path: "/v1/embeddings", status: 400, code: "invalid_parameter", names: "model"},
	} {
		t.Run(name, func(t *testing.T) {
			path := "/v1/chat/completions"
			if bad.path != "" {
				path = bad.path
			}
			request, _ := http.NewRequest(http.MethodPost, s.address()+path, strings.NewReader(bad.body))
			request.Header.Set("Authorization", "Bearer "+s.key())
			request.Header.Set("Content-Type", "application/json")
			if bad.encoding != "" {
				request.Header.Set("Content-Encoding", bad.encoding)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			text, _ := io.ReadAll(response.Body)
			a := answer{status: response.StatusCode, body: text}
			if a.status != bad.status || a.code() != bad.code || !strings.Contains(string(text), bad.names) {
				t.Errorf("%d %s", a.status, text)
			}
		})
	}
	if b := s.wallet(t, "default"); b.Held != 0 || b.Spent != 0 {
		t.Errorf("%+v", b)
	}
	if sent := seenBy(t, provider, ""); len(sent) != 0 {
		t.Errorf("the provider was asked %d times", len(sent))
	}
	if memory := resident(t, s.Process.Pid); memory > 300<<20 {
		t.Errorf("%d MiB are resident", memory>>20)
	}
}

// resident is how much memory a process has.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func TestLabelsThatBreakARuleAreRefusedBeforeTheHoldAndWriteNoSecondLogLine(t *testing.T) {
	t.Parallel()
	s, provider := gate(t, map[string]string{"chat": "mock"}, "--log-level", "debug")
	body := chat("mock/chat", "labelled")
	for name, header := range map[string]string{
		"a long tag":         "X-Service-Tag: " + strings.Repeat("x", 65),
		"a long wide tag":    "X-Service-Tag: " + strings.Repeat("é", 65),
		"a red tag":          "X-Service-Tag: \x1b[31mred",
		"a split tag":        "X-Service-Tag: a\rlevel=ERROR msg=forged",
		"a tag with a NUL":   "X-Service-Tag: a\x00b",
		"a line separator":   "X-Service-Tag: a\u2028level=ERROR msg=forged",
		"a long trace":       "X-Service-Trace-Id: " + strings.Repeat("x", 129),
		"a trace in colours": "X-Service-Trace-Id: \x1b[31mred",
		"log on":             "X-Service-Log: on",
		"cache perhaps":      "X-Service-Cache: perhaps",
	} {
		raw := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n\r\n%s",
			s.key(), len(body), header, body)
		if got := exchange(t, s, raw); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, header := range map[string]string{"64 characters": "X-Service-Tag: " + strings.Repeat("é", 64), "128 characters": "X-Service-Trace-Id: " + strings.Repeat("x", 128), "log off": "X-Service-Log: off"} {
		raw := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n\r\n%s",
			s.key(), len(body), header, body)
		if got := exchange(t, s, raw); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%s: %s", name, got)
		}
	}
	sent := seenBy(t, provider, "")
	if len(sent) != 3 {
		t.Errorf("the provider was asked %d times", len(sent))
	}
	for _, one := range sent {
		for name := range one.Header {
			if strings.HasPrefix(name, "X-Service") {
				t.Errorf("the provider was sent %s", name)
			}
		}
	}
	if strings.Contains(s.log.String(), "forged") {
		t.Errorf("a log line was forged:\n%s", s.log)
	}
}

// exchange writes bytes to a server as they are, and reads until the server closes the connection.
func exchange(t *testing.T, s *process, raw string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server does not close the connection after %.200q", raw)
	}
	return string(all)
}

// A request that hides in another's body, by lengths that contradict each other, never reaches a provider. (A bare line
// feed ends a line for net/http, so that it hides nothing: what follows is a request of its own.)
func TestARequestHiddenInAnotherReachesNoProvider(t *testing.T) {
	t.Parallel()
	s, provider := gate(t, map[string]string{"chat": "mock"})
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.key() + "\r\nContent-Type: application/json\r\n"
	hiddenBody := chat("mock/chat", "hidden")
	hidden := head + "Content-Length: " + strconv.Itoa(len(hiddenBody)) + "\r\n\r\n" + hiddenBody
	open := chat("mock/chat", "open")
	length := strconv.Itoa(len(open))
	for name, raw := range map[string]string{
		"length and encoding": head + "Content-Length: " + length + "\r\nTransfer-Encoding: chunked\r\n\r\n" + open + hidden,
		"two lengths":         head + "Content-Length: " + length + "\r\nContent-Length: " + strconv.Itoa(len(open)+len(hidden)) + "\r\n\r\n" + open + hidden,
		"odd encoding":        head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
		"early end":           head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n" + hidden,
		"signed length":       head + "Content-Length: +0\r\n\r\n" + hidden,
		"list of lengths":     head + "Content-Length: 0, " + length + "\r\n\r\n" + hidden,
	} {
		got := exchange(t, s, raw)
		if n := strings.Count(got, "HTTP/1.1 200"); n > 1 {
			t.Errorf("%s: %d answers:\n%s", name, n, got)
		}
		if reached := seenBy(t, provider, "hidden"); len(reached) > 0 {
			t.Errorf("%s: the hidden request reached the provider", name)
		}
	}
}

func TestThreeTimesTheLoadIsShedAndWhatWasAcceptedIsSettled(t *testing.T) {
	const room = 40
	s, _ := gate(t, map[string]string{"chat": "mock?chunks=20&chunk_delay=20ms&in=10&out=20"}, "--limits-connections", strconv.Itoa(room), "--limits-body", "1MiB", "--limits-buffered-memory", "8MiB")
	body := chat("mock/chat", strings.Repeat("load ", 20_000), `"stream":true`, `"max_tokens":50`)
	var shed, done atomic.Int64
	var group sync.WaitGroup
	for range 3 * room {
		group.Go(func() {
			for range 4 {
				c := s.caller() // a connection of its own
				a, err := c.post(context.Background(), "/v1/chat/completions", body, nil)
				c.client.CloseIdleConnections()
				switch {
				case err != nil:
					shed.Add(1) // the kernel's queue was full, or the connection was closed before it was read
				case a.status == 200 && a.done:
					done.Add(1)
				case a.status == 429 && a.header.Get("Retry-After") != "" && a.code() == "rate_limited":
					shed.Add(1)
				default:
					t.Errorf("%d %s %v", a.status, a.body, a.events)
				}
			}
		})
	}
	group.Wait()
	if shed.Load() == 0 || done.Load() == 0 {
		t.Errorf("%d answered, %d shed", done.Load(), shed.Load())
	}
	eventually(t, "no hold is left", func() bool { return s.wallet(t, "default").Held == 0 })
	finished := 0
	for _, row := range s.usage(t, "default") {
		if row.Outcome == "finished" {
			finished++
		}
	}
	if int64(finished) != done.Load() {
		t.Errorf("%d answers came to the end, and %d are charged as such", done.Load(), finished)
	}
	s.proves(t)
	if memory := resident(t, s.Process.Pid); memory > 400<<20 {
		t.Errorf("%d MiB are resident", memory>>20)
	}
	t.Logf("%d answered, %d shed", done.Load(), shed.Load())
}

func TestAStreamFinishesWithinTheDrainOrIsToldOfItsEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		model, drain string
		done         bool
	}{
		"finishes":    {model: "mock?chunks=60&chunk_delay=20ms&in=10&out=60", drain: "2m", done: true},
		"is cut off":  {model: "mock?chunks=2000&chunk_delay=20ms&in=10&out=2000", drain: "500ms"},
		"is quiet":    {model: "mock?chunks=9&hang_after=3", drain: "500ms"},
		"never began": {model: "mock?hang", drain: "500ms"},
	} {
		t.Run(name, func(t *testing.T) {
			provider := startProvider(t)
			p := newPlace(t, secret.Text{})
			config := mockConfig(t, provider, map[string]string{"chat": test.model})
			s := p.serve(t, "--config", config, "--limits-drain", test.drain)
			c := s.caller()
			got, begun := make(chan *answer, 1), make(chan struct{})
			var begin sync.Once
			go func() {
				a, _ := c.post(context.Background(), "/v1/chat/completions", chat("mock/chat", "drained", `"stream":true`), func([]string) bool {
					begin.Do(func() { close(begun) })
					return false
				})
				got <- a
			}()
			eventually(t, "it runs", func() bool { return len(seenBy(t, provider, "drained")) == 1 })
			if name != "never began" {
				<-begun
			}
			if code := s.stop(t); code != 0 {
				t.Errorf("exit %d", code)
			}
			a := <-got
			switch {
			case name == "never began":
				if a == nil || a.status != 503 || a.code() != "unavailable" {
					t.Errorf("%+v", a)
				}
			case a == nil || a.status != 200 || a.done != test.done:
				t.Fatalf("%+v", a)
			case !test.done:
				if end := a.events[len(a.events)-1]; !strings.Contains(end, `"code":"unavailable"`) {
					t.Errorf("the stream ends with %s", end)
				}
			}
			rows := p.usage(t, "default") // without a server
			want := map[string]string{"finishes": "finished", "is cut off": "died", "is quiet": "died"}[name]
			if got := rows[a.id()].Outcome; got != want {
				t.Errorf("charged as %q, want %q", got, want)
			}
			p.proves(t)
		})
	}
}

// neverRead asks a model for a stream, and takes nothing of it.
func (s *process) neverRead(t *testing.T, model string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.address(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := chat(model, "never read", `"stream":true`)
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.key(), len(body), body); err != nil {
		t.Fatal(err)
	}
}

func TestACallerWhoStopsReadingIsGivenUpAndItsHoldIsFree(t *testing.T) {
	t.Parallel()
	s, provider := gate(t, map[string]string{"chat": "mock?chunks=200000&in=10&out=200000&text=200000"}, "--limits-operation-timeout", "1s")
	s.neverRead(t, "mock/chat")
	eventually(t, "it runs", func() bool { return len(seenBy(t, provider, "never read")) == 1 })
	eventually(t, "the hold is free again", func() bool { return s.wallet(t, "default").Held == 0 })
	eventually(t, "the provider hears of it", func() bool { return seenBy(t, provider, "never read")[0].CancelledAt != nil })
	for _, row := range s.usage(t, "default") {
		if row.Outcome != "left" || row.Output == 0 {
			t.Errorf("%+v", row)
		}
	}
}

// The database goes away, or is slow, while requests run.
func TestDrillWithoutTheDatabaseNothingIsSpentUnheldAndNothingIsLost(t *testing.T) {
	t.Parallel()
	pg, err := dbtest.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pg.Remove() }()
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	provider := startProvider(t)
	p := newPlace(t, secret.New(pg.URL()))
	config := mockConfig(t, provider, map[string]string{"whole": fmt.Sprintf("mock?latency=2ms&in=10&out=%d", drillOutput)})
	s := p.serve(t, "--config", config)
	known, c := newTally(), s.caller()
	ctx, cancel := context.WithCancel(context.Background())
	var refused, answered atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				a, err := c.post(context.Background(), "/v1/chat/completions", chat("mock/whole", "outage", `"max_tokens":20`), nil)
				known.note(a, err)
				switch {
				case err != nil:
					t.Error(err)
				case a.status == 503 && a.header.Get("Retry-After") != "":
					refused.Add(1)
					time.Sleep(5 * time.Millisecond)
				case a.status == 200:
					answered.Add(1)
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	eventually(t, "requests are answered", func() bool { return answered.Load() > 0 })
	slowDatabase(t, pg.URL(), time.Duration(drills(500, 2000))*time.Millisecond)
	before := answered.Load()
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "requests are refused without the database", func() bool { return refused.Load() > 0 })
	time.Sleep(time.Duration(drills(1, 60)) * time.Second)
	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	back, during := time.Now(), answered.Load()
	eventually(t, "served again", func() bool { return answered.Load() > during })
	if took := time.Since(back); measured() && took > 5*time.Second {
		t.Errorf("served again %v after the database was back", took)
	}
	t.Logf("%d answered before and while it was slow, %d refused without it; serving again %v after it was back", before, refused.Load(), time.Since(back))
	during = answered.Load()
	eventually(t, "served on", func() bool { return answered.Load() > during+4 })
	cancel()
	group.Wait()
	known.against(t, p, "after the outage")
}

// slowDatabase makes every posting wait for a while.
func slowDatabase(t *testing.T, url string, by time.Duration) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("BEGIN; LOCK TABLE usage_rows IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(%f); COMMIT", by.Seconds())); err != nil {
		t.Fatal(err)
	}
}

var (
	goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)
	heap       = regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes (\S+)`)
)

// gauge reads a server's goroutines and heap, after a garbage collection.
func (s *process) gauge(t *testing.T, at string) (routines int, bytes float64) {
	t.Helper()
	get := func(path string) string {
		response, err := http.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}
	get("/debug/pprof/heap?gc=1")
	text := get("/metrics")
	routines, _ = strconv.Atoi(goroutines.FindStringSubmatch(text)[1])
	bytes, _ = strconv.ParseFloat(heap.FindStringSubmatch(text)[1], 64)
	return routines, bytes
}

// Ten minutes at full load, with every outcome, end with as many goroutines and as much memory as they began with.
func TestDrillSoakEndsAsItBegan(t *testing.T) {
	long := time.Duration(drills(1, 600)) * time.Second
	at := freeAddress(t)
	s, _ := gate(t, map[string]string{
		"whole": "mock?in=10&out=6", "stream": "mock?chunks=20&in=10&out=20", "none": "mock?chunks=20&usage=none", "dies": "mock?chunks=9&die_after=4",
		"fails": "mock?status=500", "slow": "mock?chunks=200&chunk_delay=5ms",
	}, "--operations-listen", at, "--limits-retries", "0")
	s.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "100000", "--json")
	key := s.key()
	load := func(long time.Duration) (requests int64) {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		var count atomic.Int64
		var group sync.WaitGroup
		for worker := range 24 {
			group.Go(func() {
				c := s.callerWith(key)
				defer c.client.CloseIdleConnections()
				random := rand.New(rand.NewPCG(uint64(worker), 1))
				for ctx.Err() == nil {
					names := []string{"whole", "whole", "stream", "stream", "none", "dies", "fails", "slow"}
					name := names[random.IntN(len(names))]
					body := chat("mock/"+name, "soak", `"max_tokens":300`)
					if name != "whole" && name != "fails" {
						body = chat("mock/"+name, "soak", `"max_tokens":300`, `"stream":true`)
					}
					leave := 1 + random.IntN(200)
					_, _ = c.post(ctx, "/v1/chat/completions", body, func(events []string) bool { return name == "slow" && len(events) > leave })
					count.Add(1)
				}
			})
		}
		group.Wait()
		return count.Load()
	}
	idle := func() (int, float64) {
		eventually(t, "no hold is left", func() bool { return s.wallet(t, "default").Held == 0 })
		time.Sleep(time.Second)
		return s.gauge(t, at)
	}
	load(time.Duration(drills(1, 3)) * time.Second) // pools and tables reach their size
	routines, bytes := idle()
	memory := resident(t, s.Process.Pid)
	requests := load(long)
	after, bytesAfter := idle()
	t.Logf("%d requests in %s: goroutines %d to %d, heap %.1f to %.1f MB, resident %d to %d MB", requests, long, routines, after, bytes/1e6, bytesAfter/1e6, memory>>20, resident(t, s.Process.Pid)>>20)
	if after > routines+routines/10+10 {
		t.Errorf("goroutines: %d, and %d afterwards", routines, after)
	}
	if bytesAfter > bytes*1.25+8e6 {
		t.Errorf("heap: %.1f MB, and %.1f MB afterwards", bytes/1e6, bytesAfter/1e6)
	}
	s.proves(t)
}

func TestAHangupPutsModelsInForceAndLeavesRunningStreamsAlone(t *testing.T) {
	t.Parallel()
	provider := startProvider(t)
	p := newPlace(t, secret.Text{})
	config := mockConfig(t, provider, map[string]string{"old": "mock?chunks=40&chunk_delay=25ms&in=10&out=40"})
	s := p.serve(t, "--config", config)
	c := s.caller()
	got := make(chan *answer, 1)
	go func() {
		a, _ := c.post(context.Background(), "/v1/chat/completions", chat("mock/old", "running", `"stream":true`), nil)
		got <- a
	}()
	eventually(t, "it runs", func() bool { return len(seenBy(t, provider, "running")) == 1 })
	if a := c.must(t, chat("mock/new", "too early")); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	next, err := os.ReadFile(mockConfig(t, provider, map[string]string{"new": "mock?in=1&out=1"}))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, string(next))
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new model answers", func() bool { return c.must(t, chat("mock/new", "now")).status == http.StatusOK })
	if a := c.must(t, chat("mock/old", "too late")); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := <-got; a == nil || !a.done {
		t.Errorf("the running stream was not left alone: %+v", a)
	}
	writeFile(t, config, "models: [{id: broken}]\n")
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bad file is refused", func() bool { return strings.Contains(s.log.String(), "kept as it was") })
	if a := c.must(t, chat("mock/new", "still")); a.status != http.StatusOK {
		t.Errorf("a bad file changed something: %d %s", a.status, a.body)
	}
	s.proves(t)
}
