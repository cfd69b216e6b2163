// Package s3 holds our use of S3 against a real S3 server, the Versity gateway before a folder. It is a module of its
// own, so that the product does not depend on it.
package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/artifact/artifacttest"
)

const (
	patience            = time.Minute
	workspace tenant.ID = "ws_s3"
)

// serve starts a server with an empty bucket, and returns how a backend reaches it.
func serve(t *testing.T) artifact.S3Config {
	t.Helper()
	folder := t.TempDir()
	binary := filepath.Join(folder, "versitygw")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/versity/versitygw/cmd/versitygw")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build versitygw: %v\n%s", err, text)
	}
	if err := os.MkdirAll(filepath.Join(folder, "data", artifacttest.Bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	config := artifacttest.Config(t, "http://"+address)
	ctx, stop := context.WithCancel(context.Background())
	run := exec.CommandContext(ctx, binary, "--port", address, "--access", config.AccessKey,
		"--secret", config.SecretKey.Reveal(), "posix", "--sidecar", filepath.Join(folder, "sidecar"), filepath.Join(folder, "data"))
	output := &bytes.Buffer{}
	run.Stdout, run.Stderr = output, output
	if err := os.MkdirAll(filepath.Join(folder, "sidecar"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = run.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", output)
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return config
		}
		if time.Now().After(deadline) {
			t.Fatalf("versitygw does not start: %s", output)
		}
	}
}

func open(t *testing.T, c artifact.S3Config) *artifact.S3 {
	t.Helper()
	made, err := artifact.NewS3(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestARealS3(t *testing.T) {
	config := serve(t)
	t.Run("conforms", func(t *testing.T) {
		b := open(t, config)
		artifacttest.Conform(t, b)
		to, err := b.Upload(t.Context(), workspace, artifact.File{Digest: artifact.DigestOf(nil)})
		if err != nil || to.URL == "" {
			t.Errorf("workers send nothing by themselves: %v", err)
		}
	})
	t.Run("takes a file in parts", func(t *testing.T) { inParts(t, config) })
	t.Run("refuses another secret", func(t *testing.T) {
		other := config
		other.AccessKey = "another"
		if err := open(t, other).Ready(t.Context()); err == nil {
			t.Error("it does not")
		}
	})
	t.Run("fails half-way", func(t *testing.T) { halfWay(t, config) })
}

func inParts(t *testing.T, config artifact.S3Config) {
	t.Helper()
	config.PartSize = 5 << 20 // the least that S3 takes
	b := open(t, config)
	weights := make([]byte, 12<<20)
	_, _ = rand.Read(weights)
	f := artifact.File{Digest: artifact.DigestOf(weights), Bytes: int64(len(weights))}
	weights[1]++
	if err := b.Put(t.Context(), workspace, f, bytes.NewReader(weights)); err == nil {
		t.Error("other bytes were taken")
	}
	weights[1]--
	if err := b.Put(t.Context(), workspace, f, bytes.NewReader(weights)); err != nil {
		t.Fatal(err)
	}
	if size, err := b.Size(t.Context(), workspace, f.Digest); err != nil || size != f.Bytes {
		t.Errorf("%d %v", size, err)
	}
	from, err := b.Open(t.Context(), workspace, f.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	if all, err := io.ReadAll(from); err != nil || artifact.DigestOf(all) != f.Digest {
		t.Errorf("%d bytes, %v", len(all), err)
	}
}

// halfWay spoils what stands between us and the server. What was refused is not there, and the next try stores it.
func halfWay(t *testing.T, config artifact.S3Config) {
	t.Helper()
	at, err := url.Parse(config.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	// The signature names the host that we ask: the proxy's address is not it.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", at.Host
	}}
	faulty := artifacttest.NewFaulty(t, proxy)
	config.Endpoint = faulty.URL
	for _, fault := range []artifacttest.Fault{
		artifacttest.CutRequest, artifacttest.Broken, artifacttest.SlowDown, artifacttest.Lie,
	} {
		b := open(t, config)
		text := "weights that fail with " + string(fault)
		f := artifact.File{Digest: artifact.DigestOf([]byte(text)), Bytes: int64(len(text))}
		faulty.Spoil(func(r *http.Request) artifacttest.Fault {
			if r.Method == http.MethodPut {
				return fault
			}
			return artifacttest.None
		})
		if err := b.Put(t.Context(), workspace, f, strings.NewReader(text)); err == nil {
			t.Errorf("%s: it was taken", fault)
		}
		if size, err := b.Size(t.Context(), workspace, f.Digest); err == nil {
			t.Errorf("%s: %d bytes are there", fault, size)
		}
		faulty.Spoil(func(*http.Request) artifacttest.Fault { return artifacttest.None })
		if err := b.Put(t.Context(), workspace, f, strings.NewReader(text)); err != nil {
			t.Errorf("%s, then none: %v", fault, err)
		}
	}
}
