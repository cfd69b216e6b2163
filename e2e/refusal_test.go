package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestBadBodiesAreRefusedClearlyAndNothingIsHeldOrSent(t *testing.T) {
	s, provider := serveMock(t, map[string]string{"chat": "mock", "embedding": "mock"}, "--limits-body", "4MiB", "--operations-listen", "127.0.0.1:0")
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

func TestTagsThatBreakARuleAreRefusedBeforeTheHoldAndWriteNoSecondLogLine(t *testing.T) {
	t.Parallel()
	s, provider := serveMock(t, map[string]string{"chat": "mock"}, "--log-level", "debug")
	body := chat("mock/chat", "tagged")
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
