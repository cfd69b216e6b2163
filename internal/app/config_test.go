package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"sovereign/internal/base/money"
)

func configured(t *testing.T, text string, args ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sovereign.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := reread(append([]string{"serve", "--config", path}, args...))
	if err != nil {
		err = fmt.Errorf("%s", strings.ReplaceAll(err.Error(), path, "FILE")) //nolint:err113 // shortened for comparison
	}
	return c, err
}

func TestCommandLineWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := "listen: 127.0.0.1:1\nlimits:\n  body: 1MiB\n  drain: 5s\ntrusted_proxies: [10.0.0.0/8, 192.168.0.1]\ntls:\n  cert: c.pem\n  key: k.pem\n"
	t.Setenv("SOVEREIGN_LISTEN", "127.0.0.1:2")
	t.Setenv("SOVEREIGN_LIMITS_BODY", "2MiB")
	t.Setenv("SOVEREIGN_TRAINING_S3_REGION", "eu-central-1")
	c, err := configured(t, file, "--limits-body=3MiB")
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:2" || c.Limits.Body != 3<<20 || c.Limits.Drain != 5*time.Second || c.Limits.IdleTimeout != 2*time.Minute ||
		c.Training.S3.Region != "eu-central-1" || len(c.TrustedProxies) != 2 || c.TLS.Cert != "c.pem" ||
		c.OperationsListen != "127.0.0.1:9090" {
		t.Errorf("%+v", c)
	}
	if !strings.HasSuffix(c.RootKeyFile, "/data.root.key") {
		t.Errorf("the root key must stand outside the data: %s", c.RootKeyFile)
	}
}

func TestBadConfigurationNamesTheLineAndTheReason(t *testing.T) {
	for text, want := range map[string]string{
		"listen: 127.0.0.1:1\nlisten_on: x\n":  "FILE:2: unknown key listen_on",
		"limits:\n  body: 1MiB\n  bodies: 2\n": "FILE:3: unknown key limits.bodies",
		"limits:\n  body: lots\n":              `FILE:2: limits.body: "lots" is not a size`,
		"limits:\n  drain: soon\n":             "FILE:2: limits.drain: ",
		"limits:\n  connections: many\n":       "FILE:2: limits.connections: ",
		"stripe:\n  secret_key: sk_test\n":     "FILE:2: stripe: secret_key and webhook_secret go together, and neither may be empty",
		"dashboard:\n  url: https://g.example\nstripe:\n  webhook_secret: whsec_test\n":                                      "FILE:4: stripe: secret_key and webhook_secret go together",
		"dashboard:\n  url: https://g.example\nstripe:\n  secret_key: sk_test\n  webhook_secret: ''\n":                       "FILE:4: stripe: secret_key and webhook_secret go together",
		"stripe:\n  secret_key: sk_test\n  webhook_secret: whsec_test\n":                                                     "FILE:2: stripe: dashboard.url is needed",
		"dashboard:\n  url: https://g.example\nstripe:\n  secret_key: sk_test\n  webhook_secret: whsec_test\n  max_usd: 1\n": "stripe: min_usd and max_usd must be",

		"smtp:\n  host: mail.example.com\n":                                                           "FILE:2: smtp: from must be an e-mail address",
		"smtp:\n  host: mail.example.com\n  from: a@b.c\n  tls: ssl\n":                                "smtp: tls must be starttls, implicit or none",
		"smtp:\n  host: mail.example.com\n  from: a@b.c\n  tls: none\n  username: u\n  password: p\n": "smtp: a password is not sent without tls",
		"listen: nowhere\n":                                      `FILE:1: listen: "nowhere" is not an address`,
		"\n\nlog_level: loud\n":                                  `FILE:3: log_level: "loud" is none of`,
		"log_format: xml\n":                                      `FILE:1: log_format: "xml" is neither`,
		"trusted_proxies: [10.0.0.0/8, here]\n":                  `FILE:1: trusted_proxies: "here" is not`,
		"tls:\n  cert: x\n":                                      "FILE:2: tls: cert and key go together",
		"limits:\n  body: 2GiB\n":                                "limits.buffered_memory: must be at least three times limits.body",
		"limits:\n  drain: 0s\n":                                 "FILE:2: limits.drain: must be above 0",
		"limits:\n  connections: 0\n":                            "FILE:2: limits.connections: must be at least 1",
		"limits:\n  address_keyless: 0\n":                        "FILE:2: limits.address_keyless: must be at least 1",
		"unlimited_addresses: [\"::1/128\", here]\n":             `FILE:1: unlimited_addresses: "here" is not`,
		"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n":             "FILE:2: listen is given twice",
		"- a\n- b\n":                                             "FILE:1: the file must be a mapping",
		"listen: [\n":                                            "FILE: ",
		"listen: {a: b}\n":                                       "FILE:1: listen: must be a plain value",
		"data_dir: \"\"\n":                                       "FILE:1: data_dir: must not be empty",
		"help: true\n":                                           "FILE:1: unknown key help",
		"config: other.yaml\n":                                   "FILE:1: unknown key config",
		"database-url: postgres://u:canary@h/d\n":                "FILE:1: unknown key database-url",
		"listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2\n":        "FILE: holds more than one document",
		"otlp_endpoint: 127.0.0.1:4318\n":                        `FILE:1: otlp_endpoint: "127.0.0.1:4318" is not a URL`,
		"operations_listen: x\n":                                 `FILE:1: operations_listen: "x" is not`,
		"providers:\n  - name: up\n    kind: openai\n":           `FILE:2: provider "up": base_url must be a URL`,
		"providers:\n  - name: a\n    kinds: openai\n":           "FILE:3: providers: unknown key kinds",
		"providers: openai\n":                                    "FILE:1: providers: must be a list",
		"models:\n  - id: a\n\n  - {id: b, price: {input: 1}}\n": "FILE:4: models: price: unknown key input",
		"models:\n  - {id: a, provider: sim, context_window: 1, max_output_tokens: 1, price: {input_per_mtok_usd: 0.1, output_per_mtok_usd: 0.1}}\n\n  - {id: b, provider: none, context_window: 1, max_output_tokens: 1, price: {input_per_mtok_usd: 1, output_per_mtok_usd: 1}}\n": `FILE:4: model "b": provider "none" is not configured`,
		"providers:\n  - {name: a, kind: openai, base_url: canary://x, api_key: canary}\n": `FILE:2: provider "a": base_url must be a URL`,
		"training:\n  prices: [h200]\n":                "FILE:2: training.prices: \"h200\" is not TYPE=USD",
		"kubernetes:\n  gpu_labels: [h200]\n":          "FILE:2: kubernetes.gpu_labels: \"h200\" is not TYPE=KEY:VALUE",
		"kubernetes:\n  gateway_labels: [sovereign]\n": "FILE:2: kubernetes.gateway_labels: \"sovereign\" is not KEY=VALUE",
		"kubernetes:\n  trainer:\n    image: worker\n": "kubernetes.trainer.url: must be the server's address",
		"kubernetes:\n  trainer:\n    image: worker\n    url: http://a\n    secret: s\n    command: [train]\n": "FILE:6: kubernetes.trainer.command: must pass {run} and {attempt}",
		"kubernetes:\n  trainer:\n    image: worker\n    url: http://a\n    secret: s\n":                       "kubernetes.trainer.models: must name",
		"training:\n  s3:\n    bucket: b\n":                      "training.s3.endpoint: must be set",
		"training:\n  s3:\n    endpoint: http://10.0.0.1:9000\n": "FILE:3: training.s3.endpoint: must be https",
		"training:\n  s3:\n    endpoint: http://[::1]:9000\n    bucket: b\n    access_key: a\n    secret_key: env:NOT_SET\n":                    "FILE:6: training.s3.secret_key: the environment has no NOT_SET",
		"training:\n  s3:\n    endpoint: https://s3.example\n    bucket: b\n    access_key: a\n    secret_key: canary\n    url_lifetime: 48h\n": "FILE:7: training.s3.url_lifetime: must be from",
		"serving:\n  backend: docker\n":                                  "FILE:2: serving.backend: \"docker\" is neither",
		"serving:\n  cold_start: 0s\n":                                   "FILE:2: serving.cold_start: must be above 0",
		"serving:\n  engines: small\n":                                   "FILE:2: serving.engines: must be a list",
		"serving:\n  engines:\n    - name: small\n      commands: [x]\n": "FILE:4: serving.engines: unknown key commands",
		"serving:\n  engines:\n    - name: small\n    - name: mine\n      gpu_types: [cpu]\n      base_models: [m]\n": "FILE:4: engine \"mine\": command: must be a program",
		"serving:\n  engines:\n    - {name: small, memory: lots}\n":                                                   "FILE:3: engine \"small\": memory: \"lots\" is not a size",
		"serving:\n  pool:\n    engine: small\n":                                                                      "FILE:3: serving.pool.engine: \"small\" is none of",
		"serving:\n  pool:\n    input_per_million: 20000\n":                                                           "FILE:3: serving.pool: input_per_million and",
		"limits:\n  retries: 11\n":                                                                                    "FILE:2: limits.retries: must be from 0 to 10",
		"limits: 5\n":                                                                                                 "FILE:1: limits must be a mapping",
		"limits_body: 1MiB\n":                                                                                         "FILE:1: unknown key limits_body",
		"data.dir: x\n":                                                                                               "FILE:1: unknown key data.dir",
		"database_url: [{password: canary}]\nlimits: {body: 1}":                                                       "FILE:1: database_url: must be a list of plain values",
	} {
		_, err := configured(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q\nwant %s\n got %v", text, want, err)
		}
	}
	if c, err := configured(t, "limits:\n#  body: 1MiB\ndatabase_url: ~\notlp_endpoint: null\n"); err != nil || !c.DatabaseURL.Empty() || c.OTLPEndpoint != "" {
		t.Errorf("keys without a value: %+v %v", c, err)
	}
	if _, err := configured(t, ""); err != nil {
		t.Errorf("an empty file is a fine configuration: %v", err)
	}
}

// A built-in engine needs its name alone, and what an entry says goes before it.
func TestAnEntryOfAnEngineSaysWhatIsDifferent(t *testing.T) {
	c, err := configured(t, `
serving:
  engines:
    - name: small
    - name: vllm
      base_models: [qwen/*]
      models: {qwen/qwen3-8b: /models/q}
      env: {HF_HUB_OFFLINE: 1}
      gpu_types: [h200]
      start_timeout: 20m
      memory: 64GiB
  pool:
    engine: small
    output_per_million: 2
`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Serving.templates()
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	small, vllm := all.Find("small"), all.Find("vllm")
	if !small.Serves("tiny/bigram") || small.Command[1] != "train" || small.StartTimeout != 10*time.Minute || small.API != "/v1" {
		t.Errorf("%+v", small)
	}
	if vllm.Command[0] != "vllm" || vllm.Env["HF_HUB_OFFLINE"] != "1" || vllm.Env["VLLM_NO_USAGE_STATS"] != "1" ||
		vllm.StartTimeout != 20*time.Minute || vllm.Memory != 64<<30 || vllm.Models["qwen/qwen3-8b"] != "/models/q" {
		t.Errorf("%+v", vllm)
	}
	if c.Serving.Pool.Slots != 4 || c.Serving.ColdStart != time.Minute || money.Nano(c.Serving.Pool.Output) != 2*money.Dollar {
		t.Errorf("%+v", c.Serving)
	}
}

// The example that operators copy says what the defaults are, and must not lie.
func TestExampleConfigurationStatesTheDefaults(t *testing.T) {
	plain, err := reread([]string{"serve", "--data-dir", "/var/lib/sovereign", "--root-key-file", "/etc/sovereign/root.key"})
	if err != nil {
		t.Fatal(err)
	}
	example, err := reread([]string{"serve", "--config", "../../deploy/sovereign.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", plain) != fmt.Sprintf("%+v", example) {
		t.Errorf("defaults %+v\n example %+v", plain, example)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1, "10KiB": 10 << 10, "32MiB": 32 << 20, "1 GiB": 1 << 30, "1024GiB": 1 << 40} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || int64(b) != want {
			t.Errorf("%s: %d %v", text, b, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "1MB", "x", "1025GiB", "99999999999999999999", "9007199254740993GiB"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%s is %d", text, b)
		}
	}
}

// The configuration in the manifests is one that the server takes.
func TestTheConfigurationOfTheManifestsIsFine(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/sovereign.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object struct {
			Kind string            `yaml:"kind"`
			Data map[string]string `yaml:"data"`
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind != "ConfigMap" {
			continue
		}
		c, err := configured(t, object.Data["sovereign.yaml"])
		if err != nil {
			t.Fatal(err)
		}
		gpus, err := c.Kubernetes.gpus([]string{"cpu"})
		if err != nil || c.Serving.Backend != "kubernetes" || c.Kubernetes.Namespace != "sovereign-engines" ||
			gpus["h200"].NodeSelector["nvidia.com/gpu.product"] != "NVIDIA-H200" || gpus["h200"].Resource != "nvidia.com/gpu" {
			t.Errorf("%+v, GPUs %v, %v", c.Kubernetes, gpus, err)
		}
		return
	}
	t.Error("there is no configuration")
}
