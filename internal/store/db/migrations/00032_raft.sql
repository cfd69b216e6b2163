-- +goose Up

-- A RAFT round: a model is sampled, a judge scores the samples, the best ones are trained on, and the new model is measured.
-- campaign_id is the id of the first round of those that follow each other. request, data and result are JSON: what was
-- asked for, the files of its prompts, and what came of it. parent_id is the model version that it starts from, or empty.
-- session_id scores it; sampling_id and measuring_id are training runs; job_id is its fine-tuning job. next_id is the round
-- that follows, and stopped_reason says why none does. finished_at is 0 until it has ended.
CREATE TABLE raft_rounds (
    workspace_id     TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id               TEXT   NOT NULL,
    campaign_id      TEXT   NOT NULL,
    round            BIGINT NOT NULL,
    status           TEXT   NOT NULL,
    stage            TEXT   NOT NULL,
    request          TEXT   NOT NULL,
    base_model       TEXT   NOT NULL,
    parent_id        TEXT   NOT NULL,
    budget           BIGINT NOT NULL,
    data             TEXT   NOT NULL,
    result           TEXT   NOT NULL,
    session_id       TEXT   NOT NULL,
    sampling_id      TEXT   NOT NULL,
    job_id           TEXT   NOT NULL,
    measuring_id     TEXT   NOT NULL,
    model_version_id TEXT   NOT NULL,
    next_id          TEXT   NOT NULL,
    stopped_reason   TEXT   NOT NULL,
    error_code       TEXT   NOT NULL,
    error_message    TEXT   NOT NULL,
    created_by       TEXT   NOT NULL,
    created_at       BIGINT NOT NULL,
    finished_at      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX raft_rounds_campaign ON raft_rounds (workspace_id, campaign_id, round);
CREATE INDEX raft_rounds_created ON raft_rounds (workspace_id, created_at);
CREATE INDEX raft_rounds_sampling ON raft_rounds (workspace_id, sampling_id);
CREATE INDEX raft_rounds_job ON raft_rounds (workspace_id, job_id);
CREATE INDEX raft_rounds_measuring ON raft_rounds (workspace_id, measuring_id);
CREATE INDEX raft_rounds_running ON raft_rounds (created_at) WHERE finished_at = 0;

-- +goose Down
SELECT 1;
