-- +goose Up

-- A model on engines of its own. price is that of an hour of one GPU, when the endpoint was started; wanted is how many
-- replicas shall run; failures counts the engines that ended by themselves since one lasted. hold_id is what its engines are
-- paid from, or empty; holds counts those it has had. active is false when nothing runs and everything is charged. deleted_at
-- is 0 until its owner has deleted it; the row goes when it is not active.
CREATE TABLE dedicated_endpoints (
    workspace_id     TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    id               TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    routing_key      TEXT    NOT NULL,
    status           TEXT    NOT NULL,
    base_model       TEXT    NOT NULL,
    model_version_id TEXT    NOT NULL,
    engine           TEXT    NOT NULL,
    gpu_type         TEXT    NOT NULL,
    gpu_count        BIGINT  NOT NULL,
    min_replicas     BIGINT  NOT NULL,
    max_replicas     BIGINT  NOT NULL,
    idle_timeout     BIGINT  NOT NULL,
    max_hourly       BIGINT  NOT NULL,
    price            BIGINT  NOT NULL,
    wanted           BIGINT  NOT NULL,
    failures         BIGINT  NOT NULL,
    failed_at        BIGINT  NOT NULL,
    quiet_at         BIGINT  NOT NULL,
    hold_id          TEXT    NOT NULL,
    holds            BIGINT  NOT NULL,
    error_code       TEXT    NOT NULL,
    error_message    TEXT    NOT NULL,
    error_lines      TEXT    NOT NULL,
    last_used_at     BIGINT  NOT NULL,
    created_by       TEXT    NOT NULL,
    created_at       BIGINT  NOT NULL,
    started_at       BIGINT  NOT NULL,
    deleted_at       BIGINT  NOT NULL,
    active           BOOLEAN NOT NULL,
    revision         BIGINT  NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX dedicated_endpoints_key ON dedicated_endpoints (routing_key);
CREATE INDEX dedicated_endpoints_active ON dedicated_endpoints (created_at) WHERE active;

-- A life of an engine. seen_at is when it was last seen alive. billed is how many seconds are charged; due is how many are
-- being charged, by the charge after charges, from due_hold.
CREATE TABLE endpoint_replicas (
    workspace_id TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    endpoint_id  TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    started_at   BIGINT  NOT NULL,
    ready_at     BIGINT  NOT NULL,
    seen_at      BIGINT  NOT NULL,
    drain_at     BIGINT  NOT NULL,
    ended_at     BIGINT  NOT NULL,
    billed       BIGINT  NOT NULL,
    charges      BIGINT  NOT NULL,
    due          BIGINT  NOT NULL,
    due_hold     TEXT    NOT NULL,
    settled      BOOLEAN NOT NULL,
    PRIMARY KEY (workspace_id, endpoint_id, id)
);

-- The named holds that an endpoint has had: what was spent from them is what the endpoint has spent.
CREATE TABLE endpoint_holds (
    workspace_id TEXT NOT NULL REFERENCES workspaces (workspace_id),
    endpoint_id  TEXT NOT NULL,
    hold_id      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, endpoint_id, hold_id)
);

-- +goose Down
SELECT 1;
