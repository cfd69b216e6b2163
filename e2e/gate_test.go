package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// A pipelineJob is a script that a pipeline runs, as a page of the documentation has it.
type pipelineJob struct {
	shell     []string // that the pipeline runs the script with
	script    string
	variables map[string]string
}

var (
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	evalFile  = regexp.MustCompile(`(?ms)^cat > eval\.json <<'JSON'\n(.*?)^JSON\n`)
)

// pipelineJobs are the jobs of docs/evals.md, and the body of the eval that they start.
func pipelineJobs(t *testing.T) (jobs map[string]pipelineJob, body string) {
	t.Helper()
	page, err := os.ReadFile("../docs/evals.md")
	if err != nil {
		t.Fatal(err)
	}
	found := evalFile.FindSubmatch(page)
	if found == nil || !jsontext.Value(found[1]).IsValid() {
		t.Fatal("the page has no eval.json")
	}
	jobs = map[string]pipelineJob{}
	for _, block := range yamlBlock.FindAllSubmatch(page, -1) {
		var of struct {
			Jobs map[string]struct {
				Env   map[string]string
				Steps []struct{ Run string }
			}
			Gate *struct {
				Variables map[string]string
				Script    []string
			}
		}
		if err := yaml.Unmarshal(block[1], &of); err != nil {
			t.Fatal(err)
		}
		if of.Gate != nil {
			jobs["GitLab"] = pipelineJob{[]string{"sh", "-e"}, strings.Join(of.Gate.Script, "\n"), of.Gate.Variables}
		}
		for _, job := range of.Jobs {
			var script strings.Builder
			for _, step := range job.Steps {
				script.WriteString(step.Run)
			}
			jobs["GitHub"] = pipelineJob{[]string{"bash", "-e"}, script.String(), job.Env}
		}
	}
	if len(jobs) != 2 {
		t.Fatalf("the page has %d jobs", len(jobs))
	}
	return jobs, string(found[1])
}

// The jobs of docs/evals.md, run as they stand, end with the exit code that their page says.
func TestThePipelinesOfTheDocumentationDeployOnlyWhatPasses(t *testing.T) {
	t.Parallel()
	jobs, want := pipelineJobs(t)
	const key = "sk_sovereign_canary"
	const checks = `[{"check":"min_win_rate","observed":0.6,"bound":0.55,"threshold":0.5,"pass":%[1]t,"reason":"r"},{"check":"max_cost_ratio","observed":1,"bound":1.1,"threshold":1.5,"pass":true,"reason":"r"}]`
	for what, c := range map[string]struct {
		status int
		body   string
		code   int
	}{
		"passes":  {200, `{"object":"gate","pass":true,"eval_id":"%[2]s","candidate":"sim/chat-large","checks":` + checks + `}`, 0},
		"refuses": {412, `{"error":{"message":"%[2]s is not proven","type":"invalid_request_error","code":"precondition_failed","param":null},"checks":` + checks + `}`, 1},
		"is gone": {404, `{"error":{"message":"no eval %[2]s","type":"invalid_request_error","code":"not_found","param":null}}`, 2},
	} {
		for name, job := range jobs {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				id := "eval_" + strings.Repeat("0a", 13)
				started := make(chan string, 10)
				mux := http.NewServeMux()
				mux.HandleFunc("POST /v1/evals", func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					started <- r.Header.Get("Idempotency-Key") + " " + string(body)
					w.WriteHeader(http.StatusAccepted)
					_, _ = fmt.Fprintf(w, `{"id":%q,"object":"eval","status":"QUEUED","progress":{"done":0,"total":300}}`, id)
				})
				mux.HandleFunc("GET /v1/evals/"+id, func(w http.ResponseWriter, _ *http.Request) {
					_, _ = fmt.Fprintf(w, `{"id":%q,"object":"eval","status":"DONE","progress":{"done":300,"total":300},"error":null}`, id)
				})
				mux.HandleFunc("GET /v1/evals/"+id+"/gate", func(w http.ResponseWriter, r *http.Request) {
					if got := r.URL.RawQuery; got != "max_cost_ratio=1.5&min_win_rate=0.5" {
						t.Errorf("the gate is asked for %s", got)
					}
					w.WriteHeader(c.status)
					_, _ = fmt.Fprintf(w, c.body, c.code == 0, id)
				})
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Authorization") != "Bearer "+key {
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					mux.ServeHTTP(w, r)
				}))
				defer server.Close()
				code, output := job.run(t, want, server.URL, key)
				if code != c.code || strings.Contains(output, "canary") {
					t.Errorf("exits with %d, want %d:\n%s", code, c.code, output)
				}
				if got := <-started; got != "gate-0123abc "+strings.ReplaceAll(want, "\n", "") {
					t.Errorf("it starts %s", got)
				}
				if code, output := job.run(t, want, server.URL, "sk_sovereign_wrong"); code == 0 || len(started) != 0 {
					t.Errorf("with a wrong key it exits with %d:\n%s", code, output)
				}
			})
		}
	}
}

// run runs the script in a checkout that has eval.json, against a server.
func (j pipelineJob) run(t *testing.T, body, server, key string) (code int, output string) {
	t.Helper()
	checkout := t.TempDir()
	writeFile(t, filepath.Join(checkout, "eval.json"), body)
	var out bytes.Buffer
	cmd := exec.Command(j.shell[0], append(j.shell[1:], "-c", j.script)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = checkout, &out, &out
	for name, value := range j.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "SOVEREIGN_URL="+server, "SOVEREIGN_API_KEY="+key,
		"GITHUB_SHA=0123abc", "CI_COMMIT_SHA=0123abc")
	<-startGroup(t, cmd)
	return cmd.ProcessState.ExitCode(), out.String()
}
