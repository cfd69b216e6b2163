package app

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/dataset"
	"sovereign/internal/domain/envtool"
	"sovereign/internal/domain/finetune"
	"sovereign/internal/domain/grpo"
	"sovereign/internal/domain/modelversion"
	"sovereign/internal/domain/raft"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

// Training is what training costs, and where its files are.
type Training struct {
	Prices []string `default:"cpu=0" placeholder:"TYPE=USD" help:"What an hour of a GPU costs, by its type, in dollars: h200=4.00. The type of a worker without a GPU is cpu. A worker whose type has no price gets no work."`
	S3     S3       `name:"s3" embed:"" prefix:"s3-"`
}

// S3 is the bucket that holds the files of training. Without an endpoint they are in the data folder.
type S3 struct {
	Endpoint  string        `placeholder:"URL" help:"S3-compatible store for the files of training, such as https://s3.eu-central-1.amazonaws.com; empty to keep them in the data folder. Workers send files to it and fetch them with signed addresses, and need to reach it."`
	Bucket    string        `placeholder:"NAME" help:"Its bucket."`
	Prefix    string        `placeholder:"PATH" help:"What the keys of all files begin with."`
	Region    string        `default:"us-east-1" help:"The bucket's region."`
	AccessKey string        `placeholder:"KEY" help:"Access key that may read, write and delete in the bucket. Workers do not get it."`
	SecretKey secret.Text   `placeholder:"SECRET" help:"Its secret. It may be env:NAME or file:PATH."`
	PathStyle bool          `default:"true" negatable:"" help:"The bucket is in the path of addresses, and not in their host name."`
	Lifetime  time.Duration `name:"url-lifetime" default:"1h" help:"How long the address of a file is valid that a worker got. After it, the server passes the file on."`
	AllowHTTP bool          `name:"allow-http" help:"Let the endpoint be http on a host that is not this machine."`
}

// bucket returns the bucket of files; nil without one.
func (t *Training) bucket() (*artifact.S3Config, error) {
	s := &t.S3
	if s.Endpoint == "" {
		if s.Bucket != "" || s.AccessKey != "" || !s.SecretKey.Empty() {
			return nil, bad("training.s3.endpoint", "must be set, since other keys of s3 are")
		}
		return nil, nil //nolint:nilnil // there is none
	}
	key, err := s.SecretKey.Resolve()
	if err != nil {
		return nil, bad("training.s3.secret_key", "%w", err)
	}
	made := &artifact.S3Config{
		Endpoint: strings.TrimRight(s.Endpoint, "/"), Bucket: s.Bucket, Prefix: strings.Trim(s.Prefix, "/"),
		Region: s.Region, AccessKey: s.AccessKey, SecretKey: key, PathStyle: s.PathStyle, AllowHTTP: s.AllowHTTP,
		Lifetime: s.Lifetime,
	}
	if key, err := made.Check(); err != nil {
		return nil, bad("training.s3."+key, "%w", err)
	}
	return made, nil
}

// check checks what can be wrong with training.
func (t *Training) check() error {
	if _, err := t.prices(); err != nil {
		return err
	}
	_, err := t.bucket()
	return err
}

// equal reports whether two configurations are the same.
func (t *Training) equal(other *Training) bool {
	a, b := t.S3, other.S3
	same := a.SecretKey.Equal(b.SecretKey)
	a.SecretKey, b.SecretKey = secret.Text{}, secret.Text{}
	return same && a == b && slices.Equal(t.Prices, other.Prices)
}

// prices returns the prices of GPUs.
func (t *Training) prices() (train.Prices, error) {
	all := train.Prices{}
	for _, text := range t.Prices {
		kind, amount, ok := strings.Cut(text, "=")
		hour, err := money.Parse(strings.TrimSpace(amount))
		if kind = strings.TrimSpace(kind); !ok || kind == "" || err != nil || hour < 0 {
			return nil, bad("training.prices", "%q is not TYPE=USD, such as h200=4.00", text)
		}
		all[kind] = hour
	}
	return all, nil
}

// openArtifacts opens the files of training. Whether a bucket can be reached is found out later, so that the server
// starts without it.
func (i *instance) openArtifacts() error {
	var backend artifact.Backend
	var err error
	if i.bucket != nil {
		backend, err = artifact.NewS3(*i.bucket)
	} else {
		at := filepath.Join(i.storage.config.DataDir, "artifacts")
		if i.storage.db.Engine == db.Postgres {
			backend, err = artifact.OpenShared(at)
		} else {
			backend, err = artifact.OpenFolder(at)
		}
	}
	if err != nil {
		return err
	}
	i.artifacts = artifact.NewStore(i.storage.db, backend)
	return nil
}

// training returns the modules of training.
func (d *domains) training(i *instance, sets *dataset.Store) []module.Module {
	d.trainer = train.NewStore(train.Config{
		DB: i.storage.db, Feed: i.state.feed, Holds: i.state.poster.Holds, Till: i.plane.till,
		Drain: i.state.poster.Drain, Artifacts: i.artifacts, Bounds: i.plane.bounds, Prices: i.gpuPrices,
		Offers: i.offers, Log: i.log, Member: i.member,
	})
	versions := modelversion.NewStore(i.storage.db, i.artifacts, i.storage.vault)
	versions.Publish(i.state.feed)
	jobs := finetune.NewStore(finetune.Config{
		DB: i.storage.db, Feed: i.state.feed, Train: d.trainer, Versions: versions, Artifacts: i.artifacts,
		Datasets: sets, Rewards: scored{d.rewards}, Release: version(),
	})
	tools := envtool.NewStore(i.storage.db, i.storage.vault, i.models.guard)
	runs := grpo.NewStore(grpo.Config{
		DB: i.storage.db, Feed: i.state.feed, Train: d.trainer, Versions: versions, Rewards: d.rewards, Tools: tools,
		Artifacts: i.artifacts, Datasets: sets, Release: version(), Log: i.log, Evaluation: d.evaluation(i),
	})
	rounds := raft.NewStore(raft.Config{
		DB: i.storage.db, Feed: i.state.feed, Train: d.trainer, Jobs: jobs, Versions: versions, Rewards: d.rewards,
		Artifacts: i.artifacts, Datasets: sets,
	})
	all := []module.Module{
		train.Module(d.trainer, train.Deps{Find: d.find, Serving: i.gate}),
		finetune.Module(jobs, i.plane.bounds),
		modelversion.Module(versions),
		d.adoptions(i, versions),
		d.endpoints(i, versions),
		envtool.Module(tools),
		grpo.Module(runs, i.gate),
		raft.Module(rounds),
	}
	all = append(all, i.groupsModule())
	if i.trainer != nil {
		all = append(all, trainerModule(i.trainer))
	}
	return append(all, d.pool(i)...)
}

// leadsTraining returns nil while this node starts training workers: it serves, and no other does it.
func (i *instance) leadsTraining() error {
	if err := i.gate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), leadTimeout)
	defer cancel()
	return leads(i.domains.trainer.Leads(ctx))
}

// leadTimeout bounds one reading of which node leads. It is read again.
const leadTimeout = 5 * time.Second

func leads(is bool, err error) error {
	if err == nil && !is {
		return errOtherLeads
	}
	return err
}

var errOtherLeads = errors.New("another server does this")

// scored writes what reward sessions scored as examples for training.
type scored struct{ sessions *reward.Store }

// exportFormats is what a method trains on.
var exportFormats = map[string]string{"sft": "sft", "dpo": "pairwise"}

// Examples implements finetune.Rewards.
func (s scored) Examples(ctx context.Context, ws tenant.ID, sessionID, method string, to io.Writer) error {
	e, err := s.sessions.Export(ctx, ws, sessionID, reward.ExportRequest{Format: exportFormats[method]})
	if err != nil {
		return err
	}
	return e.Write(ctx, to)
}

// worker returns the training worker of a token.
func (d *domains) worker(ctx context.Context, token string) (tenant.Worker, error) {
	w, err := d.trainer.Authenticate(ctx, token)
	return tenant.Worker{ID: w.ID, Name: w.Name, Workspace: w.Workspace}, err
}
