package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/panics"
	"sovereign/internal/domain/serving"
	"sovereign/internal/net/kubeapi"
)

// A Run is a training run that waits for a worker or has one, and the attempt that this is.
type Run struct {
	ID       string
	Attempt  int64
	Queued   bool
	GPUType  string // empty for any
	GPUCount int
}

// A TrainerConfig says how workers are started.
type TrainerConfig struct {
	Cluster kubeapi.Cluster
	Image   string
	// {url}, {run}, {attempt} and {gpu_type} stand for what the worker is told; {token_file} for its token
	Command []string
	URL     string // of the server, as pods reach it
	Secret  string // the Secret with the worker's token, under the key token
	Queue   string // Kueue's LocalQueue; empty without Kueue
	GPUType string // for runs that want any
	GPUs    map[string]GPU
	// PullSecrets are Secrets with credentials for images.
	PullSecrets []string
	Runs        func(context.Context) ([]Run, error)
	Serving     func() error // refuses while another server may own the data
	Log         *slog.Logger
	Every       time.Duration // between two looks; zero for a second
	Pause       time.Duration // the least before a worker that got no work is started again; zero for ten seconds
}

// DefaultCommand starts the worker of the image that trainer/README.md describes.
var DefaultCommand = []string{
	"python", "-m", "sovereign_trainer", "work", "--url", "{url}", "--token-file", "{token_file}", "--engine", "trl",
	"--gpu-type", "{gpu_type}", "--run", "{run}", "--attempt", "{attempt}", "--once",
}

// Check reports the first rule that c breaks, and its key.
func (c *TrainerConfig) Check() (key string, err error) {
	command := strings.Join(c.Command, " ")
	switch {
	case c.Image == "":
		return "image", errors.New("must be the image of the training worker")
	case c.URL == "":
		return "url", errors.New("must be the server's address, as pods reach it")
	case c.Secret == "":
		return "secret", errors.New("must be the Secret with the worker's token")
	case !strings.Contains(command, "{run}") || !strings.Contains(command, "{attempt}"):
		return "command", errors.New("must pass {run} and {attempt}: a Job is for one attempt at one run")
	}
	return "", nil
}

// A Trainer starts a Job for each attempt at a training run. The worker in it leases the run as any worker does: if its
// node dies, the lease runs out, and the next attempt has its own Job.
type Trainer struct {
	config TrainerConfig
	client *kubeapi.Client
	mirror *kubeapi.Mirror
	wake   chan struct{}
	tries  map[string]*slotState // Jobs that failed before they had work, by name
	idle   map[string]time.Time  // since when Jobs are not needed, by uid
	warned string
}

// OpenTrainer returns a trainer. It makes no request before it runs.
func OpenTrainer(c TrainerConfig) (*Trainer, error) {
	if len(c.Command) == 0 {
		c.Command = DefaultCommand
	}
	if c.Every == 0 {
		c.Every = time.Second
	}
	if c.Pause == 0 {
		c.Pause = 10 * time.Second
	}
	if key, err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	client, err := kubeapi.Open(c.Cluster)
	if err != nil {
		return nil, err
	}
	t := &Trainer{
		config: c, client: client, wake: make(chan struct{}, 1), tries: map[string]*slotState{}, idle: map[string]time.Time{},
	}
	t.mirror = client.Mirror(kubeapi.Jobs, func(o kubeapi.Object) bool { return o.Meta.Labels[runLabel] != "" },
		func(kubeapi.Object) {
			select {
			case t.wake <- struct{}{}:
			default:
			}
		}, t.note)
	return t, nil
}

// Labels of Jobs.
const (
	runLabel     = "sovereign/run"
	attemptLabel = "sovereign/attempt"
	queueLabel   = "kueue.x-k8s.io/queue-name"
)

// note says once why Jobs cannot be kept.
func (t *Trainer) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != t.warned && text != "" {
		t.config.Log.Warn("training Jobs cannot be kept; it is tried again", "err", err)
	}
	t.warned = text
}

// Run starts and deletes Jobs until ctx ends.
func (t *Trainer) Run(ctx context.Context) {
	defer t.client.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer panics.Contain(t.config.Log, "watch training Jobs")
		t.mirror.Run(ctx)
	}()
	defer func() { <-done }()
	tick := time.NewTicker(t.config.Every)
	defer tick.Stop()
	select {
	case <-t.mirror.Synced():
	case <-ctx.Done():
		return
	}
	for {
		if t.config.Serving == nil || t.config.Serving() == nil {
			if err := t.pass(ctx); err != nil && ctx.Err() == nil {
				t.config.Log.Warn("training Jobs are not what they should be; it is tried again", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-tick.C:
		}
	}
}

// job is what is read of a Job.
type jobStatus struct {
	Conditions []condition `json:"conditions"`
}

// over reports whether a Job has ended, and why.
func over(o kubeapi.Object) (ended bool, why string) {
	var s jobStatus
	if len(o.Status) == 0 || json.Unmarshal(o.Status, &s) != nil {
		return false, ""
	}
	for _, c := range s.Conditions {
		if c.Status == "True" && (c.Type == "Complete" || c.Type == "Failed") {
			return true, strings.TrimSpace(c.Reason + " " + c.Message)
		}
	}
	return false, ""
}

// keepIdle is how long a Job that is not needed may go on. Its worker usually ends by itself and reports it.
const keepIdle = 30 * time.Second

// pass makes the Jobs those of the runs.
func (t *Trainer) pass(ctx context.Context) error {
	runs, err := t.config.Runs(ctx)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	var wrong []error
	for _, r := range runs {
		name := jobName(r)
		needed[name] = true
		if r.Queued {
			wrong = append(wrong, t.keep(ctx, name, r))
		}
	}
	now := time.Now()
	present := map[string]bool{}
	for name, o := range t.mirror.All() {
		present[o.Meta.UID] = true
		ended, _ := over(o)
		if ended || needed[name] || !o.Meta.DeletionTimestamp.IsZero() {
			delete(t.idle, o.Meta.UID)
			continue
		}
		if since, ok := t.idle[o.Meta.UID]; !ok {
			t.idle[o.Meta.UID] = now
		} else if now.Sub(since) > keepIdle {
			wrong = append(wrong, t.client.Delete(ctx, kubeapi.Jobs, kubeapi.Meta{Name: name, UID: o.Meta.UID}, -1))
		}
	}
	for uid := range t.idle {
		if !present[uid] {
			delete(t.idle, uid)
		}
	}
	for name := range t.tries {
		if !needed[name] {
			delete(t.tries, name)
		}
	}
	return errors.Join(wrong...)
}

// keep makes the Job of a run that waits, and replaces one that ended without having taken it.
func (t *Trainer) keep(ctx context.Context, name string, r Run) error {
	o, there := t.mirror.Find(name)
	tried := t.tries[name]
	if tried == nil {
		tried = &slotState{}
		t.tries[name] = tried
	}
	if there {
		ended, why := over(o)
		if !ended || !o.Meta.DeletionTimestamp.IsZero() {
			return nil
		}
		tried.next = time.Now().Add(pause(tried.failures, Times{
			LeastPause: t.config.Pause, MostPause: 10 * time.Minute,
		}))
		tried.failures++
		t.config.Log.Warn("a training Job ended before its worker had work; another one follows", "job", name, "why", why,
			"at", tried.next)
		return t.client.Delete(ctx, kubeapi.Jobs, kubeapi.Meta{Name: name, UID: o.Meta.UID}, -1)
	}
	if time.Now().Before(tried.next) {
		return nil
	}
	made, err := t.client.Apply(ctx, kubeapi.Jobs, name, t.manifest(name, r))
	if kubeapi.Is(err, http.StatusConflict) { // the last one of this name is still being deleted
		return nil
	}
	if err == nil {
		t.mirror.Add(made)
	}
	return err
}

// jobName is unique for an attempt at a run: ids have lower-case letters, digits and one underscore.
func jobName(r Run) string {
	return "train-" + strings.ReplaceAll(r.ID, "_", "-") + "-" + strconv.FormatInt(r.Attempt, 10)
}

type trainJob struct {
	kubeapi.Type
	Meta kubeapi.Meta `json:"metadata"`
	Spec jobSpec      `json:"spec"`
}

type jobSpec struct {
	BackoffLimit int    `json:"backoffLimit"`
	Replacement  string `json:"podReplacementPolicy"`
	TTL          int    `json:"ttlSecondsAfterFinished"`
	Template     struct {
		Meta kubeapi.Meta `json:"metadata"`
		Spec podSpec      `json:"spec"`
	} `json:"template"`
}

// What a Job is kept for after its end, to be looked at, and how long a worker may take to save a checkpoint; in
// seconds.
const (
	jobTTL   = 3600
	jobGrace = 600
)

// secretPath is where a worker finds its token.
const secretPath = "/var/run/sovereign" //nolint:gosec // a folder

// manifest returns the Job of an attempt. It is applied once: Kueue suspends it and lets it go on.
func (t *Trainer) manifest(name string, r Run) trainJob {
	gpuType := r.GPUType
	if gpuType == "" {
		gpuType = t.config.GPUType
	}
	labels := map[string]string{
		managedBy: kubeapi.Manager, component: "training", runLabel: r.ID,
		attemptLabel: strconv.FormatInt(r.Attempt, 10),
	}
	job := trainJob{Type: kubeapi.Jobs.Type(), Meta: kubeapi.Meta{Name: name, Labels: labels}}
	if t.config.Queue != "" {
		job.Meta.Labels = map[string]string{queueLabel: t.config.Queue}
		for key, value := range labels {
			job.Meta.Labels[key] = value
		}
	}
	job.Spec = jobSpec{BackoffLimit: 0, Replacement: "Failed", TTL: jobTTL}
	job.Spec.Template.Meta.Labels = labels
	fill := strings.NewReplacer("{url}", t.config.URL, "{run}", r.ID, "{attempt}", strconv.FormatInt(r.Attempt, 10),
		"{gpu_type}", gpuType, "{token_file}", secretPath+"/token")
	c := container{
		Name: "worker", Image: t.config.Image, TerminationPolicy: "FallbackToLogsOnError",
		Security: containerSecurity{false, capabilities{[]string{"ALL"}}},
		Mounts: []mount{
			{Name: "token", Path: secretPath, ReadOnly: true},
			{Name: "shm", Path: "/dev/shm"},
			{Name: "tmp", Path: "/tmp"},
		},
	}
	for _, arg := range t.config.Command {
		c.Command = append(c.Command, fill.Replace(arg))
	}
	p := podSpec{
		RestartPolicy: "Never", Grace: jobGrace, Security: podSecurity{seccomp{"RuntimeDefault"}},
		Volumes: []volume{
			{Name: "token", Secret: &secretVolume{t.config.Secret, 0o444}},
			{Name: "shm", EmptyDir: &emptyDir{"Memory"}},
			{Name: "tmp", EmptyDir: &emptyDir{}},
		},
	}
	for _, name := range t.config.PullSecrets {
		p.PullSecrets = append(p.PullSecrets, reference{name})
	}
	if gpuType != serving.CPU && gpuType != "" {
		t.config.GPUs[gpuType].ask(max(r.GPUCount, 1), &p, &c)
	}
	p.Containers = []container{c}
	job.Spec.Template.Spec = p
	return job
}
