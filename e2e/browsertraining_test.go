package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
)

// beginWith waits until the file has a token, and is the worker's program then: a walk decides when a worker comes.
const beginWith = `
import pathlib, runpy, sys, time
token = pathlib.Path(sys.argv[sys.argv.index("--token-file") + 1])
while not (token.exists() and token.read_text().strip()):
    time.sleep(0.1)
runpy.run_module("sovereign_trainer", run_name="__main__", alter_sys=True)
`

// prepareTraining starts a server with two calibrated judges and a dataset, and a worker that waits for its token.
func prepareTraining(t *testing.T, p instance) (*process, object) {
	t.Helper()
	s := p.serve(t, "--training-prices", "cpu=36", "--config",
		judgeConfig(t, startProvider(t), map[string]string{"judges": "mock?judge"}, soundAnchor))
	s.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
	c := s.caller()
	judges := object{}
	for role, of := range map[string][2]string{"judge": {"Pleased", "mock/judges"}, "anchor": {"Anchor", "sim/anchor"}} {
		judge := c.criterion(t, of[1], object{"name": of[0]})
		c.grade(t, judge, inlines("what", soundLabels))
		if w := c.calibrated(t, judge); w.Block.Trust != "calibrated" && w.Block.Trust != "certified" {
			t.Fatalf("%s: %+v", role, w.Block)
		}
		judges[role] = judge
	}
	const asked = 24
	for i := range asked {
		c.ask(t, chat("sim/chat", fmt.Sprintf("Say a word about %d", i)), "X-Service-Tag", "words")
	}
	c.awaitLogs(t, asked)
	c.call(t, http.MethodPost, "/v1/datasets/from_logs", object{"name": "words", "filters": object{"tag": "words"}}, http.StatusCreated, nil)

	var minted struct{ Token string }
	p.mustAdmin(t, &minted, "worker", "create", "walk", "--json")
	folder := t.TempDir()
	token, out := filepath.Join(folder, "token"), newTail()
	worker := trainer(t)(t.Context(), "python", "-c", beginWith, "work", "--url", s.address(), "--token-file", token,
		"--work", filepath.Join(folder, "work"))
	worker.Stdout, worker.Stderr = out, out
	done := startChild(t, worker)
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		<-done
		if t.Failed() {
			t.Logf("the worker said:\n%s", out)
		}
	})
	return s, object{
		"key": s.key(), "link": s.out.find(linkText, s.done), "token": minted.Token, "tokenFile": token, "examples": string(examples()),
		"judge": judges["judge"], "anchor": judges["anchor"],
	}
}
