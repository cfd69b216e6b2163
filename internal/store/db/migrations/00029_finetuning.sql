-- +goose Up

-- A file of training examples, whose lines were checked when it was uploaded. digest names its bytes among the artifacts.
CREATE TABLE training_files (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    format       TEXT   NOT NULL,
    digest       TEXT   NOT NULL,
    bytes        BIGINT NOT NULL,
    row_count    BIGINT NOT NULL,
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- What a fine-tuning job was asked for, as JSON; its run has the same id. estimate is what it was expected to cost, or -1.
CREATE TABLE fine_tuning_jobs (
    workspace_id     TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id               TEXT   NOT NULL,
    request          TEXT   NOT NULL,
    estimate         BIGINT NOT NULL,
    model_version_id TEXT   NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- A model that was trained. document is what was signed; files is the manifest of its files, as JSON.
CREATE TABLE model_versions (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    base_model   TEXT   NOT NULL,
    parent_id    TEXT   NOT NULL,
    source_type  TEXT   NOT NULL,
    source_id    TEXT   NOT NULL,
    source_step  BIGINT NOT NULL,
    document     BYTEA  NOT NULL,
    key_id       TEXT   NOT NULL,
    jws          TEXT   NOT NULL,
    files        TEXT   NOT NULL,
    digest       TEXT   NOT NULL,
    bytes        BIGINT NOT NULL,
    adopted_at   BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX model_versions_name ON model_versions (workspace_id, name);
CREATE INDEX model_versions_created ON model_versions (workspace_id, created_at);

-- +goose Down
SELECT 1;
