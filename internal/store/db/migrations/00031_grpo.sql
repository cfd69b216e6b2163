-- +goose Up

-- What a GRPO run was asked for, as JSON; its training run has the same id. session_id is the reward session that scores it.
CREATE TABLE grpo_runs (
    workspace_id TEXT NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT NOT NULL,
    request      TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- A checkpoint of a GRPO run that may replace the base model. eval_id and gate are empty while it waits for its eval.
CREATE TABLE grpo_candidates (
    workspace_id     TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id               TEXT   NOT NULL,
    run_id           TEXT   NOT NULL,
    step             BIGINT NOT NULL,
    model_version_id TEXT   NOT NULL,
    eval_id          TEXT   NOT NULL,
    gate             TEXT   NOT NULL,
    created_at       BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX grpo_candidates_run ON grpo_candidates (workspace_id, run_id, step);
CREATE INDEX grpo_candidates_waiting ON grpo_candidates (workspace_id) WHERE gate = '';

-- +goose Down
SELECT 1;
