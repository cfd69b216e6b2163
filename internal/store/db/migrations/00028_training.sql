-- +goose Up

-- The large files of workspaces: training data, checkpoints, trained models. A file is named by the SHA-256 digest of its
-- bytes, as hex, within its workspace. The bytes are in a folder or in S3. used_at is when somebody last asked for its
-- upload: a file that nothing refers to is deleted a day after it.
CREATE TABLE artifacts (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    digest       TEXT   NOT NULL,
    bytes        BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    used_at      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, digest)
);
CREATE INDEX artifacts_used ON artifacts (used_at);

-- What refers to a file: the id of a training file, a checkpoint or a model version.
CREATE TABLE artifact_references (
    workspace_id TEXT NOT NULL,
    owner        TEXT NOT NULL,
    digest       TEXT NOT NULL,
    PRIMARY KEY (workspace_id, owner, digest)
);
CREATE INDEX artifact_references_digest ON artifact_references (workspace_id, digest);

-- A worker trains. workspace_id is empty for one that trains for all workspaces. info is what it said of itself when it
-- last asked for work, as JSON. revoked_at is 0 while its token is valid.
CREATE TABLE workers (
    id           TEXT   PRIMARY KEY,
    name         TEXT   NOT NULL,
    workspace_id TEXT   NOT NULL,
    hash         BYTEA  NOT NULL UNIQUE,
    info         TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    seen_at      BIGINT NOT NULL,
    revoked_at   BIGINT NOT NULL
);

-- A run is work of a worker: a fine-tuning job, a GRPO run, a stage of a RAFT round. kind names the domain that it belongs
-- to. spec is what the worker is told, as JSON. wanted is what it shall do next: pause, cancel, or empty to go on. attempt
-- counts the workers that it was given to; lost counts those that were lost in a row without a checkpoint between.
-- budget is its named hold. started_at and finished_at are 0 until then. settled says that everything is charged and the
-- hold has ended.
CREATE TABLE training_runs (
    workspace_id   TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    id             TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    status         TEXT    NOT NULL,
    method         TEXT    NOT NULL,
    base_model     TEXT    NOT NULL,
    spec           TEXT    NOT NULL,
    gpu_type       TEXT    NOT NULL,
    gpu_count      BIGINT  NOT NULL,
    budget         BIGINT  NOT NULL,
    wanted         TEXT    NOT NULL,
    paused_reason  TEXT    NOT NULL,
    attempt        BIGINT  NOT NULL,
    lost           BIGINT  NOT NULL,
    step           BIGINT  NOT NULL,
    total_steps    BIGINT  NOT NULL,
    tokens         BIGINT  NOT NULL,
    events         BIGINT  NOT NULL,
    error_code     TEXT    NOT NULL,
    error_message  TEXT    NOT NULL,
    created_by     TEXT    NOT NULL,
    created_at     BIGINT  NOT NULL,
    queued_at      BIGINT  NOT NULL,
    started_at     BIGINT  NOT NULL,
    finished_at    BIGINT  NOT NULL,
    settled        BOOLEAN NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX training_runs_queued ON training_runs (queued_at) WHERE status = 'QUEUED';
CREATE INDEX training_runs_unsettled ON training_runs (finished_at) WHERE finished_at > 0 AND NOT settled;
CREATE INDEX training_runs_kind ON training_runs (workspace_id, kind, created_at);

-- One worker's turn at a run. fence is its secret: a worker that lost its lease has a stale one. beat counts the accepted
-- heartbeats, and beat_at is when the last one came; metered is the time between them, in microseconds. ended_at is 0
-- while it runs; outcome says how it ended. charge is empty while it runs, then due, posted or free.
CREATE TABLE training_attempts (
    workspace_id TEXT   NOT NULL,
    run_id       TEXT   NOT NULL,
    attempt      BIGINT NOT NULL,
    worker_id    TEXT   NOT NULL,
    fence        TEXT   NOT NULL,
    gpu_type     TEXT   NOT NULL,
    gpu_count    BIGINT NOT NULL,
    rate         BIGINT NOT NULL,
    lease_until  BIGINT NOT NULL,
    beat         BIGINT NOT NULL,
    beat_at      BIGINT NOT NULL,
    metered      BIGINT NOT NULL,
    started_at   BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL,
    outcome      TEXT   NOT NULL,
    charge       TEXT   NOT NULL,
    PRIMARY KEY (workspace_id, run_id, attempt)
);
CREATE UNIQUE INDEX training_attempts_running ON training_attempts (workspace_id, run_id) WHERE ended_at = 0;
CREATE INDEX training_attempts_lease ON training_attempts (lease_until) WHERE ended_at = 0;
CREATE INDEX training_attempts_due ON training_attempts (ended_at) WHERE charge = 'due';

-- What happened in a run, in the order in which it was told. A worker numbers what it tells within its attempt: what it
-- tells twice is kept once.
CREATE TABLE training_events (
    workspace_id TEXT   NOT NULL,
    run_id       TEXT   NOT NULL,
    seq          BIGINT NOT NULL,
    attempt      BIGINT NOT NULL,
    number       BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    level        TEXT   NOT NULL,
    type         TEXT   NOT NULL,
    step         BIGINT NOT NULL,
    message      TEXT   NOT NULL,
    data         TEXT   NOT NULL,
    PRIMARY KEY (workspace_id, run_id, seq)
);
CREATE UNIQUE INDEX training_events_number ON training_events (workspace_id, run_id, attempt, number);

-- A checkpoint whose files are all stored. files is its manifest, as JSON; digest is that of the manifest.
CREATE TABLE training_checkpoints (
    workspace_id TEXT   NOT NULL,
    run_id       TEXT   NOT NULL,
    step         BIGINT NOT NULL,
    id           TEXT   NOT NULL,
    attempt      BIGINT NOT NULL,
    files        TEXT   NOT NULL,
    digest       TEXT   NOT NULL,
    bytes        BIGINT NOT NULL,
    metrics      TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, run_id, step)
);

-- A charge to a named hold is found by the hold and its request: an attempt is charged once.
CREATE INDEX usage_rows_hold ON usage_rows (workspace_id, hold_id, request_id) WHERE hold_id <> '';

-- +goose Down
SELECT 1;
