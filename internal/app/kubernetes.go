package app

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sovereign/internal/domain/serving"
	"sovereign/internal/domain/serving/kube"
	"sovereign/internal/domain/train"
	"sovereign/internal/net/kubeapi"
	"sovereign/internal/store/module"
)

// Kubernetes is the cluster in which engines and training workers run (docs/kubernetes.md).
type Kubernetes struct {
	URL              string   `name:"url" placeholder:"URL" help:"API server of the cluster, such as https://10.96.0.1:443; empty for the cluster that this server is a pod of."`
	Namespace        string   `placeholder:"NAME" help:"Namespace of engines and training Jobs; by default that of this server."`
	TokenFile        string   `placeholder:"FILE" help:"Bearer token for the API server; by default that of this pod."`
	CAFile           string   `name:"ca-file" placeholder:"FILE" help:"Certificates that the API server's is checked with; by default those of this pod."`
	GatewayNamespace string   `placeholder:"NAME" help:"Namespace of the pods of this server, which alone may reach engines; by default that of engines."`
	GatewayLabels    []string `default:"app.kubernetes.io/name=sovereign" placeholder:"KEY=VALUE" help:"Labels of the pods of this server."`
	Claim            string   `placeholder:"NAME" help:"PersistentVolumeClaim of the data folder, which engines read trained models from. It must allow many nodes to read it."`
	ClaimPath        string   `placeholder:"FOLDER" help:"Where this server has the claim mounted; by default the data folder."`
	GPUResource      string   `name:"gpu-resource" default:"nvidia.com/gpu" help:"Name under which nodes offer GPUs."`
	GPULabels        []string `name:"gpu-labels" placeholder:"TYPE=KEY:VALUE" help:"Labels of the nodes that have GPUs of a type: h200=nvidia.com/gpu.product:NVIDIA-H200."`
	PullSecrets      []string `placeholder:"NAME" help:"Secrets with credentials for images."`
	Trainer          Trainer  `embed:"" prefix:"trainer-"`
}

// Trainer is how training workers are started in the cluster.
type Trainer struct {
	Image   string   `placeholder:"IMAGE" help:"Image of the training worker. With it, a Job is started for each attempt at a training run."`
	Command []string `placeholder:"ARG" help:"Command of the worker, of arguments without commas; {url}, {run}, {attempt}, {gpu_type} and {token_file} stand for what it is told."`
	URL     string   `name:"url" placeholder:"URL" help:"This server's address, as pods reach it."`
	Secret  string   `placeholder:"NAME" help:"Secret whose key token has the token of a worker (admin worker create)."`
	Queue   string   `placeholder:"NAME" help:"LocalQueue of Kueue that Jobs wait in; empty without Kueue."`
	Models  []string `placeholder:"ID" help:"Base models that the image can train."`
	Methods []string `default:"sft,dpo,grpo" help:"Methods that it can train with."`
	GPUs    []string `name:"gpu-types" default:"cpu" placeholder:"TYPE" help:"Types of GPUs that it trains on. The first is for runs that want any."`
	Most    int64    `name:"gpu-count" default:"8" help:"The most GPUs of one Job."`
}

// cluster returns how the API server is reached.
func (k *Kubernetes) cluster() (kubeapi.Cluster, error) {
	c := kubeapi.Cluster{URL: k.URL, Namespace: k.Namespace, TokenFile: k.TokenFile, CAFile: k.CAFile}
	if k.URL == "" {
		own, err := kubeapi.InCluster()
		if err != nil {
			return c, bad("kubernetes.url", "must be set: %w", err)
		}
		c.URL = own.URL
		for to, from := range map[*string]string{
			&c.Namespace: own.Namespace, &c.TokenFile: own.TokenFile, &c.CAFile: own.CAFile,
		} {
			if *to == "" {
				*to = from
			}
		}
	}
	if key, err := c.Check(); err != nil {
		return c, bad("kubernetes."+key, "%w", err)
	}
	return c, nil
}

// pairs reads texts of a key and a value.
func pairs(key string, texts []string, between string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, between)
		if !ok || name == "" || value == "" {
			return nil, bad(key, "%q is not KEY%sVALUE", text, between)
		}
		all[name] = value
	}
	return all, nil
}

// gpus returns how types of GPUs are asked for.
func (k *Kubernetes) gpus(types []string) (map[string]kube.GPU, error) {
	all := map[string]kube.GPU{}
	for _, name := range types {
		all[name] = kube.GPU{Resource: k.GPUResource}
	}
	for _, text := range k.GPULabels {
		name, label, _ := strings.Cut(text, "=")
		found, err := pairs("kubernetes.gpu_labels", []string{label}, ":")
		if err != nil || name == "" {
			return nil, bad("kubernetes.gpu_labels", "%q is not TYPE=KEY:VALUE", text)
		}
		if before := all[name].NodeSelector; before != nil {
			maps.Copy(found, before)
		}
		all[name] = kube.GPU{Resource: k.GPUResource, NodeSelector: found}
	}
	return all, nil
}

// check checks what can be wrong, apart from the cluster itself.
func (k *Kubernetes) check() error {
	if _, err := pairs("kubernetes.gateway_labels", k.GatewayLabels, "="); err != nil {
		return err
	}
	if _, err := k.gpus(nil); err != nil {
		return err
	}
	t := &k.Trainer
	if t.Image == "" {
		return nil
	}
	c := kube.TrainerConfig{Image: t.Image, Command: t.Command, URL: t.URL, Secret: t.Secret}
	if len(c.Command) == 0 {
		c.Command = kube.DefaultCommand
	}
	if key, err := c.Check(); err != nil {
		return bad("kubernetes.trainer."+key, "%w", err)
	}
	switch {
	case len(t.Models) == 0:
		return bad("kubernetes.trainer.models", "must name what the image can train")
	case len(t.GPUs) == 0:
		return bad("kubernetes.trainer.gpu_types", "must name at least one type")
	}
	return nil
}

// equal reports whether two configurations are the same.
func (k *Kubernetes) equal(other *Kubernetes) bool { return reflect.DeepEqual(k, other) }

// engines returns the backend that runs engines in the cluster. Versions is the folder of trained models.
func (k *Kubernetes) engines(
	all serving.Engines, dataDir, versions string, gate func() error, log *slog.Logger,
) (serving.Backend, error) {
	c := kube.Config{
		Engines: all, GatewayNamespace: k.GatewayNamespace, Claim: k.Claim, PullSecrets: k.PullSecrets, Serving: gate,
		Log: log,
	}
	var err error
	if c.Cluster, err = k.cluster(); err != nil {
		return nil, err
	}
	if c.GatewayLabels, err = pairs("kubernetes.gateway_labels", k.GatewayLabels, "="); err != nil {
		return nil, err
	}
	if c.GatewayNamespace == "" {
		c.GatewayNamespace = c.Cluster.Namespace
	}
	if k.Claim != "" {
		c.ClaimPath, c.Versions = cmp.Or(k.ClaimPath, dataDir), versions
		for _, path := range []*string{&c.ClaimPath, &c.Versions} {
			if *path, err = filepath.Abs(*path); err != nil {
				return nil, bad("kubernetes.claim_path", "%w", err)
			}
		}
	}
	var types []string
	for i := range all {
		types = append(types, all[i].GPUTypes...)
	}
	if c.GPUs, err = k.gpus(types); err != nil {
		return nil, err
	}
	b, err := kube.Open(c)
	if err != nil {
		return nil, bad("kubernetes", "%w", err)
	}
	return b, nil
}

// offers are what can be trained by workers that are started when there is work.
func (k *Kubernetes) offers() []train.Info {
	t := &k.Trainer
	if t.Image == "" {
		return nil
	}
	var all []train.Info
	for _, gpuType := range t.GPUs {
		info := train.Info{Methods: slices.Clone(t.Methods), GPUType: gpuType, GPUCount: t.Most}
		for _, id := range t.Models {
			info.Models = append(info.Models, train.Base{ID: id, Random: strings.HasPrefix(id, "tiny/")})
		}
		all = append(all, info)
	}
	return all
}

// trainer returns what starts training workers in the cluster; nil without an image of them.
func (k *Kubernetes) trainer(
	needs func(context.Context) ([]train.Need, error), gate func() error, log *slog.Logger,
) (*kube.Trainer, error) {
	t := &k.Trainer
	if t.Image == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	c := kube.TrainerConfig{
		Image: t.Image, Command: t.Command, URL: t.URL, Secret: t.Secret, Queue: t.Queue, GPUType: t.GPUs[0],
		PullSecrets: k.PullSecrets, Serving: gate, Log: log,
		Runs: func(ctx context.Context) ([]kube.Run, error) {
			found, err := needs(ctx)
			var all []kube.Run
			for _, n := range found {
				fits := n.GPUType == "" || slices.Contains(t.GPUs, n.GPUType)
				if fits && n.GPUCount <= t.Most && slices.Contains(t.Models, n.BaseModel) {
					all = append(all, kube.Run{
						ID: n.ID, Attempt: n.Attempt, Queued: n.Queued, GPUType: n.GPUType, GPUCount: int(n.GPUCount),
					})
				}
			}
			return all, err
		},
	}
	var err error
	if c.Cluster, err = k.cluster(); err != nil {
		return nil, err
	}
	if c.GPUs, err = k.gpus(t.GPUs); err != nil {
		return nil, err
	}
	made, err := kube.OpenTrainer(c)
	if err != nil {
		return nil, bad("kubernetes.trainer", "%w", err)
	}
	return made, nil
}

// trainerModule is the module that starts training workers in the cluster.
func trainerModule(t *kube.Trainer) module.Module {
	return module.Module{Name: "training jobs", Background: []module.Loop{{Name: "training jobs", Run: t.Run}}}
}
