package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// The other gateways, as the registries of npm and PyPI have them. None of them keeps books here: neither usage nor
// money is written.
const (
	namePortkey = "portkey"
	nameLiteLLM = "litellm"

	peersFolder    = ".tools/peers"
	portkeyVersion = "1.15.2"
	litellmVersion = "1.106.2"
)

var (
	peerNames     = []string{nameLiteLLM, namePortkey}
	peerScenarios = []string{"chat", "prompt", "paced", "burst"}
)

func peerFolder(name, version string) string {
	folder, err := filepath.Abs(filepath.Join(peersFolder, name+"-"+version))
	if err != nil {
		return ""
	}
	return folder
}

// A step is a command of an installation.
type step []string

// installPeers installs what is not there yet. What cannot be installed is left out of the measurement.
func installPeers(ctx context.Context, o *options) error {
	portkey, litellm := peerFolder(namePortkey, portkeyVersion), peerFolder(nameLiteLLM, litellmVersion)
	for folder, steps := range map[string][]step{
		portkey: {{
			"npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", portkey,
			"@portkey-ai/gateway@" + portkeyVersion,
		}},
		litellm: {{"python3", "-m", "venv", litellm}, {litellm + "/bin/pip", "install", "-q", "litellm[proxy]==" + litellmVersion}},
	} {
		if _, err := os.Stat(filepath.Join(folder, "complete")); err == nil {
			continue
		}
		o.say("installing %s", folder)
		if err := install(ctx, folder, steps); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o.say("cannot install %s: %v", folder, err)
		}
	}
	return nil
}

func install(ctx context.Context, folder string, steps []step) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, s := range steps {
		if out, err := exec.CommandContext(ctx, s[0], s[1:]...).CombinedOutput(); err != nil { //nolint:gosec // the steps above
			return fmt.Errorf("%s: %w: %.500s", s[0], err, out)
		}
	}
	return os.WriteFile(filepath.Join(folder, "complete"), nil, 0o600)
}

func startPortkey(ctx context.Context, s *stage, o *options) (*target, error) {
	program := filepath.Join(
		peerFolder(namePortkey, portkeyVersion), "node_modules/@portkey-ai/gateway/build/start-server.js",
	)
	p := anonymousSenders("chat")
	p.head = fmt.Sprintf("x-portkey-provider: openai\r\nx-portkey-custom-host: http://%s/v1\r\n", s.address)
	return s.startPeer(ctx, o, namePortkey, program, p, func(port string) []string {
		return []string{"node", program, "--headless", "--port=" + port}
	})
}

func startLiteLLM(ctx context.Context, s *stage, o *options) (*target, error) {
	program := filepath.Join(peerFolder(nameLiteLLM, litellmVersion), "bin/litellm")
	p := anonymousSenders("chat")
	file := filepath.Join(s.folder, "litellm.yaml")
	config := fmt.Appendf(nil, `model_list:
  - {model_name: %s, litellm_params: {model: openai/gpt-4o-mini, api_base: "http://%s/v1", api_key: provider-secret}}
general_settings: {master_key: sk-%[3]s}
`, p.models[0], s.address, p.keys[0])
	p.keys[0] = "sk-" + p.keys[0]
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	return s.startPeer(ctx, o, nameLiteLLM, program, p, func(port string) []string {
		return []string{
			"env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR", program, "--config", file, "--host",
			"127.0.0.1", "--port", port,
		}
	})
}

// startPeer starts a gateway and tries what it can do.
func (s *stage) startPeer(
	ctx context.Context, o *options, name, program string, p senders, command func(port string) []string,
) (*target, error) {
	if _, err := os.Stat(program); err != nil {
		return nil, errNotInstalled
	}
	t, err := s.startOn(ctx, name, func(address string) (*process, error) {
		line := command(address[len("127.0.0.1:"):])
		return start(ctx, s.folder, name, syscall.SIGKILL, line[0], line[1:]...)
	})
	if err != nil {
		return nil, err
	}
	t.senders = func(string) senders { return p }
	for _, sc := range peerScenarios {
		if err := s.try(ctx, t, sc); err != nil {
			o.say("%-10s fails at %s: %v", name, sc, err)
			t.cannot = append(t.cannot, sc)
		}
	}
	for i := range scenarios { // skip the scenarios that it was not tested with
		if other := scenarios[i].name; !slices.Contains(peerScenarios, other) {
			t.cannot = append(t.cannot, other)
		}
	}
	return t, nil
}

// try sends one request of a scenario.
func (s *stage) try(ctx context.Context, t *target, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	sc := &scenarios[slices.IndexFunc(scenarios, func(sc scenario) bool { return sc.name == name })]
	if _, err := s.control(ctx, query("latency", "0s", "interval", "0s")); err != nil {
		return err
	}
	l := &load{
		addresses: []string{t.address}, order: newOrder(sc.path, sc.body, t.senders(sc.kind)), want: sc.want, conns: 1,
		memory: 32 << 10,
	}
	crew, err := l.dial(ctx)
	if err != nil {
		return err
	}
	defer crew.close()
	defer context.AfterFunc(ctx, crew.close)()
	return crew.callers[0].one(time.Now())
}
