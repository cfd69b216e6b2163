package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/secret"
)

// nginxConfig is a proxy with nginx's defaults, and further directives for HTTP and for the proxied location. It is one
// process, which ends with the test.
const nginxConfig = `daemon off; master_process off; pid nginx.pid; error_log nginx.err;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  %s
  server { listen %s; location / { proxy_pass %s; %s } }
}
`

// startNginx runs nginx before a server, with directives for HTTP and for the location, and returns its address.
func startNginx(t *testing.T, server, forHTTP, forLocation string) string {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatal("nginx is missing: scripts/setup test installs it")
	}
	folder, address, log := t.TempDir(), freeAddress(t), newTail()
	file := filepath.Join(folder, "nginx.conf")
	writeFile(t, file, fmt.Sprintf(nginxConfig, forHTTP, address, server, forLocation))
	cmd := exec.Command(program, "-p", folder, "-c", file)
	cmd.Stdout, cmd.Stderr = log, log
	done := startChild(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return "http://" + address
		}
		select {
		case <-done:
			t.Fatalf("nginx has ended: %s", log)
		default:
		}
	}
	t.Fatalf("nginx does not serve: %s", log)
	return ""
}

// nginx buffers answers by default. A stream asks it not to, in the fast lane and out of it: what a provider has said
// arrives while the provider is silent.
func TestAStreamComesThroughNginxAsItIsWritten(t *testing.T) {
	t.Parallel()
	config := mockConfig(t, startProvider(t), map[string]string{"slow": "mock?chunks=50&hang_after=2"})
	for lane, flag := range map[string]string{"fast lane": "--fast-lane", "net/http": "--no-fast-lane"} {
		server := newInstance(t, secret.Text{}).serve(t, "--config", config, flag, "--limits-stall-timeout", "1h")
		if asked := firstContent(t, server.address(), server.key()).Get("X-Accel-Buffering"); asked != "no" {
			t.Errorf("%s: X-Accel-Buffering is %q", lane, asked)
		}
		for proxy, directives := range map[string]string{"defaults": "", "HTTP/1.1": `proxy_http_version 1.1; proxy_set_header Connection "";`} {
			t.Run(lane+", "+proxy, func(t *testing.T) {
				t.Parallel()
				firstContent(t, startNginx(t, server.address(), "", directives), server.key())
			})
		}
	}
}

// firstContent reads a stream up to its first content, after which its provider falls silent, and returns the header.
func firstContent(t *testing.T, address, key string) http.Header {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	body := `{"model":"mock/slow","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("the provider is silent, and nothing has come: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); !strings.Contains(lines.Text(), `"every `); {
		if !lines.Scan() {
			t.Fatalf("the provider is silent, and no content has come: %d, %v", response.StatusCode, lines.Err())
		}
	}
	return response.Header
}
