package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/text/redact"
)

// echo is a provider that answers with the last message, as it is. A stream brings seven characters at a time.
func echo(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Stream   bool
			Messages []struct{ Content json.RawMessage }
		}
		var text string
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := json.Unmarshal(asked.Messages[len(asked.Messages)-1].Content, &text); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		choice := func(member, content, finish string) string {
			quoted, _ := json.Marshal(content)
			return fmt.Sprintf(`"choices":[{"index":0,%q:{"role":"assistant","content":%s},"finish_reason":%s}]`, member, quoted, finish)
		}
		if !asked.Stream {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"id":"x","object":"chat.completion",%s,"usage":{"prompt_tokens":1,"completion_tokens":1}}`, choice("message", text, `"stop"`))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for piece := range slices.Chunk([]rune(text), 7) {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",%s}\n\n", choice("delta", string(piece), "null"))
		}
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",%s}\n\n", choice("delta", "", `"stop"`))
		_, _ = fmt.Fprint(w, "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A credential of every kind, in every place that a request or an answer has for it, is in no byte of the data folder
// afterwards. The provider answers with what it was asked, whole and streamed, so that answers carry credentials too.
func TestNoCredentialReachesTheDisk(t *testing.T) {
	t.Parallel()
	const marker = "marker-that-is-no-credential"
	p := newInstance(t, secret.Text{})
	s := p.serve(t, "--config", keyConfig(t, echo(t)))
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
	c := s.caller()
	quoted := func(text string) string {
		inner, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(inner)
	}
	all := redact.Samples(rand.New(rand.NewPCG(rand.Uint64(), 1)))
	samples := slices.DeleteFunc(slices.Clone(all), func(s redact.Sample) bool { // a password may happen to read like a word
		clean, _ := redact.Text([]byte(s.Text()))
		return string(clean) != s.Clean()
	})
	if len(samples) < len(all)*95/100 {
		t.Errorf("only %d of %d samples are known", len(samples), len(all))
	}
	last := ""
	for i, sample := range samples {
		text := sample.Text()
		arguments := quoted(quoted(map[bool]string{true: text, false: "x " + text}[i%2 == 0]))
		body := `{"model":"up/m","stream":` + map[bool]string{true: "true", false: "false"}[i%3 == 0] + `,"messages":[
			{"role":"system","content":` + quoted("You keep secrets. "+text) + `},
			{"role":"user","name":"n","content":[{"type":"text","text":` + quoted(text) + `},{"type":"text","text":"` + marker + `"}]},
			{"role":"assistant","content":` + quoted(text) + `,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":` + arguments + `}}]},
			{"role":"tool","tool_call_id":"c","content":` + quoted(quoted(text)) + `},
			{"role":"user","content":` + quoted(text) + `}],
			"tools":[{"type":"function","function":{"name":"f","description":` + quoted(text) + `,"parameters":{"type":"object","properties":{}}}}]}`
		c.header = nil
		if len(text) <= 64 && !strings.ContainsAny(text, "\r\n\t") {
			c.header = http.Header{"X-Service-Tag": {text}, "X-Service-Trace-Id": {text}}
		}
		a := c.must(t, body)
		if a.status != 200 || !a.done {
			t.Fatalf("%s: %d %s", sample.Rule, a.status, a.body)
		}
		if said := textOf(a.events); len(a.events) > 0 && said != text || len(a.events) == 0 && saidBy(t, a) != text {
			t.Fatalf("%s: the answer does not repeat the credential: %s %s", sample.Rule, a.body, said)
		}
		last = a.id()
	}
	c.logged(t, last)
	if rows := c.logs(t, ""); len(rows) != len(samples) {
		t.Errorf("%d rows of %d requests", len(rows), len(samples))
	}
	s.stop(t)
	disk := diskOf(t, p.data)
	if !bytes.Contains(disk, []byte(marker)) || !bytes.Contains(disk, []byte(redact.Mark)) {
		t.Fatal("what is no credential is not on the disk either: this test sees nothing")
	}
	for _, sample := range samples {
		whole := sample.Secret
		for name, form := range map[string]string{"itself": whole, "its half": whole[len(whole)/2:], "quoted": strings.Trim(quoted(whole), `"`), "quoted twice": strings.Trim(quoted(strings.Trim(quoted(whole), `"`)), `"`)} {
			if len(form) < 6 || name == "its half" && len(form) < 16 { // shorter ones are elsewhere by chance
				continue
			}
			if at := bytes.Index(disk, []byte(form)); at >= 0 {
				t.Errorf("%s, %s: %q is on the disk: %q", sample.Rule, name, form, disk[max(0, at-60):min(len(disk), at+len(form)+20)])
			}
		}
	}
	t.Logf("%d credentials of %d kinds, %d bytes on the disk", len(samples), len(redact.Rules()), len(disk))
}

// diskOf returns the contents of all files of a folder.
func diskOf(t *testing.T, folder string) (disk []byte) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		disk = append(disk, content...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// Whatever text a person sends to be kept, no credential in it reaches the disk: not in its row, and not in the audit
// trail.
func TestNoCredentialThatAPersonWritesReachesTheDisk(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	s := p.serve(t, "--config", keyConfig(t, echo(t)))
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
	c := s.caller()
	c.must(t, `{"model":"up/m","messages":[{"role":"user","content":"hi"}]}`)
	c.awaitLogs(t, 1)
	const marker = "a text that is kept"
	used := map[string]string{} // credentials, by place
	rng := rand.New(rand.NewPCG(rand.Uint64(), 2))
	credential := func(place string) string {
		samples := redact.Samples(rng)
		used[place] = samples[slices.IndexFunc(samples, func(s redact.Sample) bool { return s.Rule == "github" })].Secret
		return used[place]
	}
	filter := func(place string) object { return object{"tag": credential(place)} }
	c.call(t, http.MethodPut, "/v1/aliases", object{"name": "mine", "target_model": "up/m", "description": marker + " " + credential("description of an alias")}, http.StatusOK, nil)
	criterion := c.criterion(t, "up/m", object{"name": credential("name of a criterion"), "rubric": "It has " + credential("rubric"), "filters": filter("filter of a criterion")})
	c.call(t, http.MethodPatch, "/v1/criteria/"+criterion, object{"rubric": "It has " + credential("second rubric")}, http.StatusOK, nil)
	c.call(t, http.MethodPut, "/v1/criteria/"+criterion+"/monitoring", object{"enabled": false, "filters": filter("filter of a monitor")}, http.StatusOK, nil)
	var label struct{ ID string }
	c.call(t, http.MethodPost, "/v1/labels", object{
		"messages": []object{{"role": "user", "content": "hi"}}, "response": object{"role": "assistant", "content": "ho"}, "verdict": "pass",
		"critique": "It has " + credential("critique"), "author": credential("author"), "source": credential("source"),
	}, http.StatusCreated, &label)
	c.call(t, http.MethodPost, "/v1/labels/"+label.ID+"/adjudication", object{"kind": "label_error", "note": "It has " + credential("note")}, http.StatusOK, nil)
	c.call(t, http.MethodPost, "/v1/datasets/from_logs", object{"name": credential("name of a dataset"), "filters": filter("filter of a dataset")}, 0, nil)
	p.mustAdmin(t, nil, "key", "create", "--workspace", "default", "--email", "owner@localhost", "--name", credential("name of a key"), "--json")
	p.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "1", "--memo", "for "+credential("memo"), "--json")
	s.stop(t)
	disk := diskOf(t, p.data)
	if !bytes.Contains(disk, []byte(marker)) || !bytes.Contains(disk, []byte(redact.Mark)) {
		t.Fatal("what is no credential is not on the disk either: this test sees nothing")
	}
	for place, credential := range used {
		if bytes.Contains(disk, []byte(credential)) {
			t.Errorf("the credential in the %s is on the disk", place)
		}
	}
}
