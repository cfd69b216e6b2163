// Package quota bounds how many things of a kind a workspace stores. A store checks a quota in the transaction that
// adds a thing, after it was added: the transaction is then undone. An operator may set another quota for a workspace.
package quota

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Kind is a kind of stored things.
type Kind struct {
	Name    string
	Default int64
	count   string // what is counted, of the rows of the workspace $1
}

// The kinds, with generous quotas. A label is counted by rows, so its quota also bounds what counting costs.
var (
	Artifacts = Kind{"artifact_mib", 1 << 20, `
		SELECT CAST(COALESCE(SUM((bytes + 1048575) / 1048576), 0) AS BIGINT) FROM artifacts WHERE workspace_id = $1`}
	Aliases  = kind("aliases", 1_000, `aliases WHERE workspace_id = $1`)
	Channels = kind("channels", 20, `notice_channels WHERE workspace_id = $1`)
	Criteria = kind("criteria", 1_000, `criteria WHERE workspace_id = $1`)
	Datasets = kind("datasets", 1_000, datasetRows)
	// One that was deleted counts until its engines have ended.
	DedicatedEndpoints = kind("dedicated_endpoints", 20, `dedicated_endpoints WHERE workspace_id = $1`)
	Endpoints          = kind("endpoints", 100, `eval_endpoints WHERE workspace_id = $1`)
	EnvironmentTools   = kind("environment_tools", 100, `environment_tools WHERE workspace_id = $1`)
	EvalCases          = kind("eval_cases", 1_000_000, `eval_cases WHERE workspace_id = $1`)
	Evals              = kind("evals", 10_000, `evals WHERE workspace_id = $1`)
	Invitations        = kind("invitations", 1_000, `invitations WHERE workspace_id = $1`)
	Keys               = kind("keys", 10_000, `api_keys WHERE workspace_id = $1 AND revoked_at IS NULL`)
	Labels             = kind("labels", 200_000, `labels WHERE workspace_id = $1`)
	Members            = kind("members", 1_000, `members WHERE workspace_id = $1`)
	// A run that has not ended counts as the model that it will make. One that only samples makes none.
	ModelVersions = Kind{"model_versions", 10_000, `
		SELECT (SELECT COUNT(*) FROM model_versions WHERE workspace_id = $1) +
			(SELECT COUNT(*) FROM training_runs
				WHERE workspace_id = $1 AND finished_at = 0 AND method <> 'sample')`}
	ProviderKeys = kind("provider_keys", 100, `provider_keys WHERE workspace_id = $1`)
	ReviewItems  = kind("review_items", 200_000, `review_items WHERE workspace_id = $1`)
	ReviewQueues = kind("review_queues", 1_000, `review_queues WHERE workspace_id = $1`)
	Reviewers    = kind("reviewers", 1_000, `review_grants WHERE workspace_id = $1`)
	// A session that was purged keeps no texts, and does not count.
	RewardSessions = kind("reward_sessions", 10_000, `reward_sessions WHERE workspace_id = $1 AND purged_at = 0`)
	RewardTasks    = Kind{"reward_tasks_kib", 4 << 20, `
		SELECT CAST(COALESCE(SUM((task_bytes + 1023) / 1024), 0) AS BIGINT) FROM reward_sessions
		WHERE workspace_id = $1 AND purged_at = 0`}
	TrainingFiles = kind("training_files", 10_000, `training_files WHERE workspace_id = $1`)
	TrainingRuns  = kind("training_runs", 100_000, `training_runs WHERE workspace_id = $1`)
	// A payment that was made, or whose page is gone, does not count.
	Topups = kind("open_topups", 20, `topups WHERE workspace_id = $1 AND state = 'pending'`)
	Views  = kind("views", 500, `saved_views WHERE workspace_id = $1`)
)

// kind is a kind of which each row counts.
func kind(name string, most int64, rows string) Kind {
	return Kind{name, most, `SELECT COUNT(*) FROM ` + rows}
}

// datasetRows are the datasets that are there, and those that are being built, with their holdouts.
const datasetRows = `(
	SELECT id FROM datasets WHERE workspace_id = $1
	UNION ALL
	SELECT builds.id FROM dataset_builds builds JOIN jobs ON jobs.workspace_id = $1 AND jobs.id = builds.id
	WHERE builds.workspace_id = $1 AND jobs.status IN ('QUEUED', 'RUNNING')
	UNION ALL
	SELECT builds.holdout_id FROM dataset_builds builds JOIN jobs ON jobs.workspace_id = $1 AND jobs.id = builds.id
	WHERE builds.workspace_id = $1 AND jobs.status IN ('QUEUED', 'RUNNING') AND builds.holdout_id IS NOT NULL
) AS stored`

// Kinds lists every kind.
var Kinds = []Kind{
	Aliases, Artifacts, Channels, Criteria, Datasets, DedicatedEndpoints, Endpoints, EnvironmentTools, EvalCases, Evals,
	Invitations, Keys, Labels, Members, ModelVersions, ProviderKeys, ReviewItems, ReviewQueues, Reviewers,
	RewardSessions, RewardTasks, Topups, TrainingFiles, TrainingRuns, Views,
}

// A State is a quota, and how much of it is used.
type State struct {
	Kind   string `json:"kind" doc:"What is stored"`
	Quota  int64  `json:"quota" doc:"The most that the workspace may store"`
	Stored int64  `json:"stored"`
}

// Check refuses a transaction that has added things beyond the quota. in is scoped to the workspace.
func Check(ctx context.Context, in db.Scoped, k Kind, added int) error {
	quota, err := k.quota(ctx, in)
	if err != nil {
		return err
	}
	stored, err := k.stored(ctx, in)
	if err != nil || stored <= quota {
		return err
	}
	return fault.QuotaExceeded.New("the workspace stores %d %s, and its quota of %s is %d: %d more do not fit",
		stored-int64(added), k.Name, k.Name, quota, added)
}

// quota returns the quota of a workspace.
func (k Kind) quota(ctx context.Context, in db.Scoped) (int64, error) {
	own, err := db.Maybe[int64](ctx, in, `SELECT most FROM quotas WHERE workspace_id = $1 AND kind = $2`, k.Name)
	if err != nil {
		return 0, fmt.Errorf("read the quota of %s: %w", k.Name, err)
	}
	if own == nil {
		return k.Default, nil
	}
	return *own, nil
}

func (k Kind) stored(ctx context.Context, in db.Scoped) (int64, error) {
	n, err := db.One[int64](ctx, in, k.count)
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", k.Name, err)
	}
	return n, nil
}

// List returns every quota of a workspace.
func List(ctx context.Context, in db.Scoped) ([]State, error) {
	all := make([]State, 0, len(Kinds))
	for _, k := range Kinds {
		quota, err := k.quota(ctx, in)
		if err != nil {
			return nil, err
		}
		stored, err := k.stored(ctx, in)
		if err != nil {
			return nil, err
		}
		all = append(all, State{Kind: k.Name, Quota: quota, Stored: stored})
	}
	return all, nil
}

// maxQuota bounds a quota: more is a typing error.
const maxQuota = 1_000_000_000

// Set changes quotas of a workspace, by the names of their kinds, and returns all. What is stored beyond a new quota
// stays; nothing can be added to it.
func Set(
	ctx context.Context, d *db.DB, ws tenant.ID, by tenant.Actor, quotas map[string]int64,
) (all []State, err error) {
	for name, most := range quotas {
		if !slices.ContainsFunc(Kinds, func(k Kind) bool { return k.Name == name }) {
			return nil, fault.Invalid("quotas."+name, "is not a kind of things that has a quota")
		}
		if most < 0 || most > maxQuota {
			return nil, fault.Invalid("quotas."+name, fmt.Sprintf("must be from 0 to %d", maxQuota))
		}
	}
	_, err = d.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		before, err := List(ctx, in)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(quotas)) {
			if _, err := db.Exec(ctx, in, `
				INSERT INTO quotas (workspace_id, kind, most) VALUES ($1, $2, $3)
				ON CONFLICT (workspace_id, kind) DO UPDATE SET most = excluded.most`, name, quotas[name]); err != nil {
				return fmt.Errorf("write the quota of %s: %w", name, err)
			}
		}
		if all, err = List(ctx, in); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "workspace.quotas", string(ws), before, all)
	})
	return all, err
}
