package sim

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/wire/upstream"
)

// drain reads all frames without waiting; silent is true if the body never ends.
func drain(f frames) (text string, silent bool, err error) {
	var b strings.Builder
	for {
		next, ok := f()
		switch {
		case !ok || next.err != nil:
			return b.String(), false, next.err
		case next.wait == forever:
			return b.String(), true, nil
		}
		b.Write(next.data)
	}
}

func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		chatWith(""), chatWith(`"stream":true,"n":3`), chatWith(`"tools":[` + weather + `],"tool_choice":"required","stream":true`), chatWith(`"reasoning_effort":"low","max_tokens":3,"stream":true`),
		chatWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$defs":{"a":{"anyOf":[{"$ref":"#"},{"type":["null","number"]}]}},"properties":{"p":{"$ref":"#/$defs/a"}},"required":["p"]}}}`),
		chatWith(`"stream":true,"stop":["a","b"],"sim":{"seed":3,"chunks":4,"tokens":20,"fail":"die","fail_after":2,"usage":{"cached_tokens":1}}`),
		chatWith(`"sim":{"fail":"status_429","error_rate":0.5,"quality":0.1,"sensitivity":0.5}`),
		chatWith(`"stream":true,"stream_options":{"include_usage":true},"sim":{"fail":"error_event","chunk_ms":5,"latency_ms":5}`),
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url"}]},{"role":"tool","tool_call_id":"x","content":"ü"}]}`,
		`{"model":"m","input":["a","b"],"dimensions":3,"encoding_format":"base64"}`, `{"model":"m","input":[[1,2],[3]]}`, `null`, `[]`, ``, `{"sim":{"x":1}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, id := range []string{"sim/chat", "sim/judge", "sim/embedding"} {
			m := model(id)
			a, err := (&provider{}).answer(&upstream.Request{Model: m, Path: pathOf[m.Kind], Body: [][]byte{body}})
			if err != nil {
				a = errorAnswer(err)
			}
			text, silent, err := drain(a.frames)
			failed := strings.Contains(string(body), "fail")
			switch {
			case a.status != http.StatusOK:
				envelope(t, text)
			case err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || !failed), silent && !failed:
				t.Fatalf("silent %v, %v", silent, err)
			case a.kind == streamType:
				if l := readStream(t, text); !l.done && !failed {
					t.Fatalf("no end: %s", text)
				}
			case !failed && !jsontext.Value(text).IsValid():
				t.Fatalf("not JSON: %s", text)
			}
		}
	})
}
