package app

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"sovereign/internal/base/money"
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
	"sovereign/internal/store/module"
)

// Training is what training costs, and where its files are.
type Training struct {
	Prices []string `default:"cpu=0" placeholder:"TYPE=USD" help:"What an hour of a GPU costs, by its type, in dollars: h200=4.00. The type of a worker without a GPU is cpu. A worker whose type has no price gets no work."`
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

// openArtifacts opens the files of training.
func (i *instance) openArtifacts() error {
	folder, err := artifact.OpenFolder(filepath.Join(i.storage.config.DataDir, "artifacts"))
	if err != nil {
		return err
	}
	i.artifacts = artifact.NewStore(i.storage.db, folder)
	return nil
}

// training returns the modules of training.
func (d *domains) training(i *instance, sets *dataset.Store) []module.Module {
	d.trainer = train.NewStore(train.Config{
		DB: i.storage.db, Feed: i.state.feed, Holds: i.state.poster.Holds, Till: i.plane.till, Drain: i.state.poster.Drain,
		Artifacts: i.artifacts, Bounds: i.plane.bounds, Prices: i.gpuPrices, Log: i.log,
	})
	versions := modelversion.NewStore(i.storage.db, i.artifacts, i.storage.vault)
	jobs := finetune.NewStore(finetune.Config{
		DB: i.storage.db, Feed: i.state.feed, Train: d.trainer, Versions: versions, Artifacts: i.artifacts, Datasets: sets,
		Rewards: scored{d.rewards}, Release: version(),
	})
	tools := envtool.NewStore(i.storage.db, i.storage.vault, i.models.guard)
	runs := grpo.NewStore(grpo.Config{
		DB: i.storage.db, Feed: i.state.feed, Train: d.trainer, Versions: versions, Rewards: d.rewards, Tools: tools,
		Artifacts: i.artifacts, Datasets: sets, Release: version(), Log: i.log,
	})
	rounds := raft.NewStore(raft.Config{
		DB: i.storage.db, Feed: i.state.feed, Train: d.trainer, Jobs: jobs, Versions: versions, Rewards: d.rewards,
		Artifacts: i.artifacts, Datasets: sets,
	})
	return []module.Module{
		train.Module(d.trainer, train.Deps{Find: d.find, Serving: i.gate}),
		finetune.Module(jobs, i.plane.bounds),
		modelversion.Module(versions),
		envtool.Module(tools),
		grpo.Module(runs, i.gate),
		raft.Module(rounds),
	}
}

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
