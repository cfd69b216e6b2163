// Package kube runs engines and training as pods of a Kubernetes cluster.
//
// Of each name there is a ConfigMap, with what was asked for, and it owns the rest: a Service, a NetworkPolicy, a
// PodDisruptionBudget and the pods. So one deletion collects all, whatever was killed when.
//
// A replica is a pod, and not one of a Deployment: a pod with restartPolicy Never has one container with one life, so
// that its uid names that life, and its status has when that began and ended, by the clock of its node. A finalizer
// keeps a pod that has ended until its end is recorded, as Kubernetes' own Jobs do: nothing is lost while the server is
// away.
package kube

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

// A Config is what the operator says of the cluster.
type Config struct {
	Cluster kubeapi.Cluster
	Engines serving.Engines
	// GatewayNamespace and GatewayLabels name the pods that may reach engines: those of the server.
	GatewayNamespace string
	GatewayLabels    map[string]string
	// Claim is a PersistentVolumeClaim that the server has mounted at ClaimPath. Engines see of it the files of their
	// own version, at the same path, and those of no workspace all of Versions.
	Claim     string
	ClaimPath string
	Versions  string // folder of all versions; below ClaimPath
	GPUs      map[string]GPU
	// PullSecrets are Secrets with credentials for images.
	PullSecrets []string
	Serving     func() error // refuses while another server may own the data: nothing is changed then; nil for never
	Log         *slog.Logger

	// BaseURL returns where the API of a pod is; nil for its own address and port.
	BaseURL func(podIP string, port int, uid string) string
	// Times are between attempts; zero for those of production.
	Times Times
}

// A GPU is how a type of GPU is asked for.
type GPU struct {
	Resource     string            // such as nvidia.com/gpu, which is the default
	NodeSelector map[string]string // labels of its nodes, such as nvidia.com/gpu.product: NVIDIA-H200
}

// Times are how long the backend waits.
type Times struct {
	LeastPause, MostPause time.Duration // between the end of a replica and the next one; it doubles with each failure
	Grace                 time.Duration // that an engine has to end, when it is told to; whole seconds
	Lost                  time.Duration // how long an end may take, beyond the grace, until its node counts as lost
}

func (t *Times) complete() {
	if t.LeastPause == 0 {
		*t = Times{LeastPause: time.Second, MostPause: time.Minute, Grace: 30 * time.Second, Lost: 2 * time.Minute}
	}
}

// port is where engines listen in their pods.
const port = 8000

// check reports the first rule that c breaks.
func (c *Config) check() error {
	switch {
	case c.GatewayNamespace == "" || len(c.GatewayLabels) == 0:
		return errors.New("gateway: the namespace and a label of the server's pods must be set: no others may reach engines")
	case c.Claim != "" && !filepath.IsAbs(c.ClaimPath):
		return errors.New("claim_path: must be where the server has the claim mounted, such as /data")
	case c.Claim != "" && c.Versions != "" && !below(c.ClaimPath, c.Versions):
		return errors.New("claim_path: the folder of versions is not below it")
	}
	return nil
}

// below reports whether a path is in a folder.
func below(folder, path string) bool {
	rest, err := filepath.Rel(folder, path)
	return err == nil && rest != "." && rest != ".." && !strings.HasPrefix(rest, "../")
}
