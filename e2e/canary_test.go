package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/text/redact"
)

// word is what the offline model may take for a word of the prompt, and repeat.
var word = regexp.MustCompile(`^[0-9a-z]{6,12}$`)

// A credential of every kind, in every place that a request or an answer has for it, is in no byte of the data folder afterwards.
// The simulated model answers with what it was asked, whole and streamed, so that answers carry them too.
func TestNoCredentialReachesTheDisk(t *testing.T) {
	const marker = "marker-that-is-no-credential"
	p := newPlace(t, secret.Text{})
	s := p.serve(t)
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
	var spoken strings.Builder
	for i, sample := range samples {
		text := sample.Text()
		arguments := quoted(quoted(map[bool]string{true: text, false: "x " + text}[i%2 == 0]))
		body := `{"model":"sim/chat","stream":` + map[bool]string{true: "true", false: "false"}[i%3 == 0] + `,"messages":[
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
		last = a.id()
		fmt.Fprintln(&spoken, string(a.body), textOf(a.events))
	}
	c.logged(t, last)
	if rows := c.logs(t, ""); len(rows) != len(samples) {
		t.Errorf("%d rows of %d requests", len(rows), len(samples))
	}
	s.stop(t)
	var disk []byte
	err := filepath.WalkDir(p.data, func(path string, entry fs.DirEntry, err error) error {
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
	if !bytes.Contains(disk, []byte(marker)) || !bytes.Contains(disk, []byte(redact.Mark)) {
		t.Fatal("what is no credential is not on the disk either: this test sees nothing")
	}
	for _, sample := range samples {
		whole := sample.Secret
		for name, form := range map[string]string{"itself": whole, "its half": whole[len(whole)/2:], "quoted": strings.Trim(quoted(whole), `"`), "quoted twice": strings.Trim(quoted(strings.Trim(quoted(whole), `"`)), `"`)} {
			if len(form) < 6 || name == "its half" && len(form) < 16 { // of what is shorter, the model makes words
				continue
			}
			kept := disk
			if said := " " + form + " "; word.MatchString(form) && strings.Contains(spoken.String(), said) {
				kept = bytes.ReplaceAll(disk, []byte(said), nil) // as a word of the model's own, which nobody can tell from others
			}
			if at := bytes.Index(kept, []byte(form)); at >= 0 {
				t.Errorf("%s, %s: %q is on the disk: %q", sample.Rule, name, form, kept[max(0, at-60):min(len(kept), at+len(form)+20)])
			}
		}
	}
	t.Logf("%d credentials of %d kinds, %d bytes on the disk", len(samples), len(redact.Rules()), len(disk))
}
