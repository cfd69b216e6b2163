package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

// Labels and annotations of objects.
const (
	managedBy   = "app.kubernetes.io/managed-by"
	component   = "app.kubernetes.io/component"
	engineLabel = "sovereign/engine" // the name of a spec
	slotLabel   = "sovereign/slot"   // which of its replicas a pod is
	hashLabel   = "sovereign/hash"   // of the pod's spec
	specNote    = "sovereign/spec"
	removedNote = "sovereign/removed"
	readyNote   = "sovereign/ready-at" // when the pod was first ready
	finalizer   = "sovereign/recorded" // keeps a pod until its end is recorded
)

// containerName is that of the engine's container in its pod.
const containerName = "engine"

// prefix begins the names of objects.
const prefix = "engine-"

// ours reports whether an object was made by a backend: whether it has one of the marks that all of them were made
// with.
func ours(o kubeapi.Object) bool {
	return strings.HasPrefix(o.Meta.Name, prefix) && (o.Meta.Labels[managedBy] == kubeapi.Manager ||
		o.Meta.Labels[engineLabel] != "" || o.Meta.Annotations[specNote] != "" ||
		slices.Contains(o.Meta.Finalizers, finalizer) ||
		slices.ContainsFunc(o.Meta.Owners, func(w kubeapi.Owner) bool { return strings.HasPrefix(w.Name, prefix) }))
}

// belongs returns the name of the spec that an object is of. The object's own name says it, since nobody can change
// that.
func belongs(k kubeapi.Kind, o kubeapi.Object) string {
	name := strings.TrimPrefix(o.Meta.Name, prefix)
	if k == kubeapi.Pods {
		name = name[:max(strings.LastIndexByte(name, '-'), 0)] // the rest is its number
	}
	return name
}

// spec is a serving.Spec as it is kept in the cluster.
type spec serving.Spec

func (s spec) text() (string, error) {
	text, err := json.Marshal(s, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("write the spec of an engine: %w", err)
	}
	return string(text), nil
}

// shape is a spec without what may change while its replicas run.
func (s spec) shape() spec {
	s.Replicas = 0
	return s
}

func labelsOf(name string) map[string]string {
	return map[string]string{managedBy: kubeapi.Manager, component: "engine", engineLabel: name}
}

// root returns the ConfigMap that owns everything of a name.
func root(s spec, removed bool) (configMap, error) {
	text, err := s.text()
	if err != nil {
		return configMap{}, err
	}
	meta := kubeapi.Meta{
		Name: prefix + s.Name, Labels: labelsOf(s.Name),
		// It is set in both cases: what others have added, an apply takes away only where it says something else.
		Annotations: map[string]string{removedNote: strconv.FormatBool(removed)},
	}
	return configMap{kubeapi.ConfigMaps.Type(), meta, map[string]string{"spec": text}}, nil
}

// surroundings returns what stands around the pods of a name.
func (b *Backend) surroundings(s spec, owner kubeapi.Owner) map[kubeapi.Kind]any {
	meta := kubeapi.Meta{Name: prefix + s.Name, Labels: labelsOf(s.Name), Owners: []kubeapi.Owner{owner}}
	pods := map[string]string{engineLabel: s.Name}
	svc := service{Type: kubeapi.Services.Type(), Meta: meta}
	svc.Spec.ClusterIP, svc.Spec.Selector = "None", pods
	svc.Spec.Ports = []servicePort{{"api", port, "api", "TCP"}}
	gateway := peer{
		selector{map[string]string{"kubernetes.io/metadata.name": b.config.GatewayNamespace}},
		selector{b.config.GatewayLabels},
	}
	policy := networkPolicy{kubeapi.NetworkPolicies.Type(), meta, networkPolicySpec{
		Pods: selector{pods}, Types: []string{"Ingress"},
		Ingress: []ingressRule{{[]peer{gateway}, []policyPort{{"TCP", port}}}},
	}}
	pdb := budget{Type: kubeapi.Budgets.Type(), Meta: meta}
	// a node can always be emptied, one pod at a time
	pdb.Spec.MinAvailable, pdb.Spec.Selector = max(s.Replicas-1, 0), selector{pods}
	return map[kubeapi.Kind]any{kubeapi.Services: svc, kubeapi.NetworkPolicies: policy, kubeapi.Budgets: pdb}
}

// manifest returns the pod of a slot.
// uid is empty for one that is to be made.
func (b *Backend) manifest(
	s spec, name, uid string, slot int, owner kubeapi.Owner, readyAt clock.Time,
) (pod, error) {
	runs, hash, err := b.podSpec(s)
	if err != nil {
		return pod{}, err
	}
	text, err := s.shape().text()
	if err != nil {
		return pod{}, err
	}
	labels := labelsOf(s.Name)
	labels[slotLabel], labels[hashLabel] = strconv.Itoa(slot), hash
	notes := map[string]string{specNote: text}
	if readyAt != 0 {
		notes[readyNote] = strconv.FormatInt(int64(readyAt), 10)
	}
	return pod{kubeapi.Pods.Type(), kubeapi.Meta{
		Name: name, UID: uid, Labels: labels, Annotations: notes, Finalizers: []string{finalizer},
		Owners: []kubeapi.Owner{owner},
	}, runs}, nil
}

// awaySeconds is how long a node may be away until its engines count as lost.
const awaySeconds = 60

// podSpec returns what a replica of s runs, and its hash: a pod with another one is replaced.
func (b *Backend) podSpec(s spec) (podSpec, string, error) {
	engine := b.config.Engines.Find(s.Engine)
	if engine == nil {
		return podSpec{}, "", fmt.Errorf("there is no engine %q in the configuration", s.Engine)
	}
	if engine.Image == "" {
		return podSpec{}, "", fmt.Errorf("the engine %s has no image: set it in the configuration", s.Engine)
	}
	launch, err := engine.Launch(serving.Spec(s), serving.Place{
		Host: "$(POD_IP)", Port: port, Work: "/work", Sovereign: "sovereign", Folder: s.Folder,
	})
	if err != nil {
		return podSpec{}, "", err
	}
	get := httpGet{engine.Health, "api"}
	c := container{
		Name: containerName, Image: engine.Image, Command: launch.Args, Env: variables(launch.Env),
		Ports:             []containerPort{{"api", port, "TCP"}},
		Startup:           &probe{get, 2, 2, max(int(engine.StartTimeout.Seconds())/2, 1)},
		Readiness:         &probe{get, 5, 5, 2},
		Liveness:          &probe{get, 10, 10, 6},
		TerminationPolicy: "FallbackToLogsOnError",
		Security:          containerSecurity{false, capabilities{[]string{"ALL"}}},
		Mounts:            []mount{{Name: "work", Path: "/work"}, {Name: "shm", Path: "/dev/shm"}},
	}
	p := podSpec{
		RestartPolicy: "Never", Grace: int(b.config.Times.Grace.Seconds()),
		Security: podSecurity{seccomp{"RuntimeDefault"}},
		Volumes:  []volume{{Name: "work", EmptyDir: &emptyDir{}}, {Name: "shm", EmptyDir: &emptyDir{"Memory"}}},
	}
	// Kubernetes adds these two with five minutes if they are missing. An engine on a node that is away is replaced
	// sooner.
	for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		p.Tolerations = append(p.Tolerations, toleration{key, "Exists", "NoExecute", awaySeconds})
	}
	for _, name := range b.config.PullSecrets {
		p.PullSecrets = append(p.PullSecrets, reference{name})
	}
	if err := b.mountVersions(s, &p, &c); err != nil {
		return podSpec{}, "", err
	}
	b.askForGPUs(s, engine, &p, &c)
	p.Containers = []container{c}
	text, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return podSpec{}, "", fmt.Errorf("write the pod of an engine: %w", err)
	}
	// A version has its own hash even if the command does not name it.
	sum := sha256.Sum256(fmt.Appendf(text, "\n%s\n%s", s.Version, s.Workspace))
	return p, hex.EncodeToString(sum[:8]), nil
}

// mountVersions lets an engine read the files that it serves, and no others.
func (b *Backend) mountVersions(s spec, p *podSpec, c *container) error {
	folder := s.Folder
	if folder == "" && s.Adapters > 0 && s.Workspace == "" {
		folder = b.config.Versions
	}
	switch {
	case folder == "":
		return nil
	case b.config.Claim == "":
		return errors.New("engines cannot read the files of versions: set kubernetes.claim in the configuration")
	case !below(b.config.ClaimPath, folder):
		return fmt.Errorf("engines cannot read %s: it is not on the claim %s", folder, b.config.Claim)
	}
	within, err := filepath.Rel(b.config.ClaimPath, folder)
	if err != nil {
		return fmt.Errorf("find %s on the claim %s: %w", folder, b.config.Claim, err)
	}
	p.Volumes = append(p.Volumes, volume{Name: "versions", Claim: &claim{Name: b.config.Claim}})
	c.Mounts = append(c.Mounts, mount{Name: "versions", Path: folder, SubPath: within, ReadOnly: true})
	return nil
}

// askForGPUs asks for the GPUs of a spec, and for its memory.
func (b *Backend) askForGPUs(s spec, engine *serving.Engine, p *podSpec, c *container) {
	if engine.Memory > 0 {
		c.Resources.Limits = map[string]string{"memory": strconv.FormatInt(engine.Memory, 10)}
	}
	if s.GPUType != serving.CPU && s.GPUType != "" {
		b.config.GPUs[s.GPUType].ask(max(s.GPUCount, 1), p, c)
	}
}

// ask makes a container one that gets so many GPUs.
func (g GPU) ask(n int, p *podSpec, c *container) {
	resource := cmp.Or(g.Resource, "nvidia.com/gpu")
	if c.Resources.Limits == nil {
		c.Resources.Limits = map[string]string{}
	}
	c.Resources.Limits[resource] = strconv.Itoa(n)
	p.NodeSelector = g.NodeSelector
	p.Tolerations = append(p.Tolerations, toleration{Key: resource, Operator: "Exists", Effect: "NoSchedule"})
}

// variables returns variables as Kubernetes has them, with the pod's own address first, which others may name.
func variables(all map[string]string) []variable {
	address := variable{Name: "POD_IP", From: &valueFrom{}}
	address.From.Field.Path = "status.podIP"
	list := []variable{address}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, variable{Name: name, Value: all[name]})
	}
	return list
}
