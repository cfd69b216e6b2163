package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// prepareEndpoints starts a server with an engine for small models, which is its pool too, and one that cannot load. It
// has a trained model with an eval against its base, an alias of each, and an endpoint that has failed.
func prepareEndpoints(t *testing.T, p instance) (*process, object) {
	t.Helper()
	t.Cleanup(func() { killEngines(t, p.data) })
	source, err := filepath.Abs("../trainer/src")
	if err != nil {
		t.Fatal(err)
	}
	config := judgeConfig(t, startProvider(t), map[string]string{"letters": "mock?judge&likes=a-z&in=100&out=10"}, nil)
	models, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config, fmt.Sprintf(`%s
serving:
  engines:
    - name: small
      command: [python3, -X, "pycache_prefix={work}", -m, sovereign_trainer, serve, --model, "{model_path}", --name, "{name}", --host, "{host}", --port, "{port}"]
      env: {PYTHONPATH: %q}
    - name: broken
      base_models: ["broken/*"]
      command: [sh, -c, "for n in 1 2 3; do echo loading part $n of 3; done; echo CUDA out of memory; exit 1", "{port}"]
      gpu_types: [cpu]
  pool: {engine: small}
`, models, source))
	s := newTrainingServer(t, p, "--config", config)
	p.mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "500", "--json")
	c := s.caller()
	var failing dedicated
	c.call(t, http.MethodPost, "/v1/dedicated-endpoints", object{"name": "Crashing", "baseModel": "broken/large"}, http.StatusCreated, &failing)
	c.call(t, http.MethodPut, "/v1/aliases", object{"name": "assistant", "target_model": "sim/chat"}, http.StatusOK, nil)
	s.worker(t)
	job := s.ended(t, s.start(t, "sft"))
	if job.Status != "SUCCEEDED" {
		t.Fatalf("%+v", job)
	}
	s.prove(t, job.ModelVersionID)
	return s.server, object{
		"key": s.key, "link": s.server.out.find(linkText, s.server.done), "failing": failing.ID, "version": job.ModelVersionID,
	}
}

// prove makes an alias of the base model, and an eval by a measured judge in which a version is better than that.
func (s *trainingServer) prove(t *testing.T, version string) {
	t.Helper()
	const cases, base = 60, "ft/base/tiny/bigram"
	c := s.caller()
	s.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
	for i := range cases {
		c.ask(t, chat("sim/chat", fmt.Sprintf("say red %d", i)))
	}
	c.awaitLogs(t, cases)
	s.mustAdmin(t, nil, "workspace", "set", "--workspace", "default", "--default-max-tokens", "12", "--json")
	var made struct{ Name string }
	c.get(t, "/v1/model-versions/"+version, &made)
	eventually(t, "the models are served", func() bool {
		status, _ := c.call(t, http.MethodPut, "/v1/aliases", object{"name": "letters", "target_model": base}, 0, nil)
		return status == http.StatusOK
	})
	var eval struct{ ID, Status string }
	c.call(t, http.MethodPost, "/v1/evals", object{
		"name": "Letters", "criterion_id": (&grpoServer{trainingServer: s}).judge(t, "mock/letters"), "baseline_model": base,
		"candidate_models": []string{made.Name}, "sample_count": cases,
	}, http.StatusAccepted, &eval)
	eventually(t, "the eval", func() bool {
		c.call(t, http.MethodGet, "/v1/evals/"+eval.ID, nil, http.StatusOK, &eval)
		return eval.Status == "DONE"
	})
}
