package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
)

// prepareEndpoints starts a server with an engine for small models, which is its pool too, and one that cannot load. It has
// a trained model, an alias, and an endpoint that has failed.
func prepareEndpoints(t *testing.T, p instance) (*process, object) {
	t.Helper()
	t.Cleanup(func() { killEngines(t, p.data) })
	source, err := filepath.Abs("../trainer/src")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "sovereign.yaml")
	writeFile(t, config, fmt.Sprintf(`
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
`, source))
	s := newStudio(t, p, "--config", config)
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
	return s.server, object{
		"key": s.key, "link": s.server.out.find(linkText, s.server.done), "failing": failing.ID, "version": job.ModelVersionID,
	}
}
