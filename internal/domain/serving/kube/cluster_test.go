package kube_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/net/kubeapi"
)

// patience is how long a test waits for something that has to happen.
const patience = 3 * time.Minute

// The tokens of the cluster: of its administrator, and of the server as the Role of deploy/kubernetes allows it.
const (
	adminToken  = "admin-token"
	serverToken = "server-token"
)

// A cluster is a real control plane: etcd, the API server, the controller manager.
type cluster struct {
	folder, url string
	processes   []*exec.Cmd
	logs        []string
	admin       *http.Client
	namespaces  atomic.Int64
}

var shared struct {
	once    sync.Once
	cluster *cluster
	err     error
}

// TestMain also is the program that pods of the tests run.
func TestMain(m *testing.M) {
	if behaviour := os.Getenv("ENGINE_BEHAVIOUR"); behaviour != "" {
		engineMain(behaviour)
		return
	}
	if os.Getenv("SERVER_CONFIG") != "" {
		serverMain()
	}
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.stop()
	}
	os.Exit(code)
}

// start returns the control plane of this run of the tests.
func start(t *testing.T) *cluster {
	t.Helper()
	bin := os.Getenv("SOVEREIGN_KUBERNETES")
	if bin == "" {
		t.Skip("SOVEREIGN_KUBERNETES is not set to a folder with etcd and kube-apiserver: make kubernetes builds them")
	}
	shared.once.Do(func() { shared.cluster, shared.err = startCluster(bin) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

func startCluster(bin string) (*cluster, error) {
	folder, err := os.MkdirTemp("", "kubernetes")
	if err != nil {
		return nil, err
	}
	c := &cluster{folder: folder}
	if err := c.launch(bin); err != nil {
		for _, log := range c.logs {
			text, _ := os.ReadFile(log)
			err = fmt.Errorf("%w\n%s: %s", err, log, text[max(0, len(text)-3000):])
		}
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *cluster) launch(bin string) error {
	etcd, peer, port := freePort(), freePort(), freePort()
	at := func(name string) string { return filepath.Join(c.folder, name) }
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"sa.key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"tokens": adminToken + ",admin,1,system:masters\n" + serverToken +
			",system:serviceaccount:sovereign:sovereign,2,\"system:serviceaccounts,system:serviceaccounts:sovereign,system:authenticated\"\n",
		"admin.token": adminToken, "server.token": serverToken,
		"kubeconfig": fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
			"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:%d","insecure-skip-tls-verify":true}}],
			"users":[{"name":"u","user":{"token":"%s"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`,
			port, adminToken),
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := os.Symlink(filepath.Join(bin, "kube-apiserver"), at("kube-controller-manager")); err != nil {
		return err
	}
	c.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	c.admin = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout:   time.Minute,
	}
	client, peers := fmt.Sprintf("http://127.0.0.1:%d", etcd), fmt.Sprintf("http://127.0.0.1:%d", peer)
	if err := c.run(filepath.Join(bin, "etcd"), "--data-dir", at("etcd"), "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default="+peers, "--unsafe-no-fsync", "--log-level", "warn"); err != nil {
		return err
	}
	if err := c.run(filepath.Join(bin, "kube-apiserver"), "--etcd-servers", client, "--bind-address", "127.0.0.1",
		"--advertise-address", "127.0.0.1", "--secure-port", strconv.Itoa(port), "--cert-dir", at("certs"),
		"--token-auth-file", at("tokens"), "--authorization-mode", "RBAC", "--anonymous-auth=false",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", at("sa.key"),
		"--service-account-signing-key-file", at("sa.key"), "--service-cluster-ip-range", "10.0.0.0/24",
		"--endpoint-reconciler-type", "none", "--kubelet-preferred-address-types", "InternalIP",
		"--enable-priority-and-fairness=false", "--profiling=false"); err != nil {
		return err
	}
	if err := c.ready(); err != nil {
		return err
	}
	return c.run(at("kube-controller-manager"), "--kubeconfig", at("kubeconfig"), "--leader-elect=false",
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--service-account-private-key-file", at("sa.key"),
		"--controllers", "garbage-collector-controller,job-controller,disruption-controller,serviceaccount-controller,"+
			"namespace-controller,pod-garbage-collector-controller,ttl-after-finished-controller,resourcequota-controller")
}

// run starts a program that ends with this process.
func (c *cluster) run(program string, args ...string) error {
	log, err := os.Create(filepath.Join(c.folder, filepath.Base(program)+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	c.logs = append(c.logs, log.Name())
	if err := startTied(cmd); err != nil {
		return err
	}
	c.processes = append(c.processes, cmd)
	return nil
}

// startTied starts a program that is killed when this process ends, whatever ends it.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread ends, and this one does not before the program
		result <- cmd.Start()
		if cmd.Process != nil {
			tied.Wait()
		}
	}()
	return <-result
}

// tied keeps the threads that started programs.
var tied = func() *sync.WaitGroup {
	w := &sync.WaitGroup{}
	w.Add(1)
	return w
}()

func (c *cluster) ready() error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if code, _ := c.call(context.Background(), http.MethodGet, "/readyz", nil, nil); code == http.StatusOK {
			return nil
		}
	}
	return errors.New("the API server is not ready")
}

func (c *cluster) stop() {
	for _, p := range c.processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	_ = os.RemoveAll(c.folder)
}

func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// call makes a request as the administrator, and returns its status.
func (c *cluster) call(ctx context.Context, method, path string, in, out any) (int, error) {
	return c.callAs(ctx, adminToken, method, path, "application/json", in, out)
}

func (c *cluster) callAs(ctx context.Context, token, method, path, kind string, in, out any) (int, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return 0, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", kind)
	answer, err := c.admin.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode >= 300 {
		return answer.StatusCode, fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	if out != nil {
		return answer.StatusCode, json.Unmarshal(text, out)
	}
	return answer.StatusCode, nil
}

// must makes a request as the administrator that has to succeed.
func (c *cluster) must(t *testing.T, method, path string, in, out any) {
	t.Helper()
	if _, err := c.call(context.Background(), method, path, in, out); err != nil {
		t.Fatal(err)
	}
}

// namespace makes an empty namespace, with the Role of deploy/kubernetes for the server.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", c.namespaces.Add(1))
	c.must(t, http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}}, nil)
	for _, object := range manifests(t, "rbac.yaml") {
		switch object["kind"] {
		case "Role", "RoleBinding":
			object["metadata"].(map[string]any)["namespace"] = name
			path := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + name + "/" + strings.ToLower(object["kind"].(string)) + "s"
			c.must(t, http.MethodPost, path, object, nil)
		}
	}
	deadline := time.Now().Add(patience) // pods need the account that a controller makes
	for {
		if code, _ := c.call(t.Context(), http.MethodGet, "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil, nil); code == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the namespace has no account")
		}
		time.Sleep(50 * time.Millisecond)
	}
	return name
}

// reach is how a client of a token reaches a namespace.
func (c *cluster) reach(token, namespace string) kubeapi.Cluster {
	return kubeapi.Cluster{
		URL: c.url, Namespace: namespace, TokenFile: filepath.Join(c.folder, token), CAFile: filepath.Join(c.folder, "certs", "apiserver.crt"),
	}
}
