-- +goose Up

-- Datasets: each a snapshot of examples that never changes. What it was made from, and how, is JSON.
CREATE TABLE datasets (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    role         TEXT   NOT NULL CHECK (role IN ('train', 'eval')),
    row_count    BIGINT NOT NULL,
    provenance   TEXT   NOT NULL,
    curation     TEXT   NOT NULL,
    holdout_id   TEXT,
    holdout_of   TEXT,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, name)
);
CREATE INDEX datasets_created ON datasets (workspace_id, created_at, id);

-- The lines of examples, each once in a workspace, by their SHA-256. A line goes with the last row that names it.
CREATE TABLE dataset_examples (
    workspace_id TEXT  NOT NULL,
    hash         BYTEA NOT NULL,
    line         BYTEA NOT NULL,
    PRIMARY KEY (workspace_id, hash)
);

-- Which examples a dataset has, in their order. Positions may leave gaps.
CREATE TABLE dataset_rows (
    workspace_id TEXT   NOT NULL,
    dataset_id   TEXT   NOT NULL,
    position     BIGINT NOT NULL,
    hash         BYTEA  NOT NULL,
    PRIMARY KEY (workspace_id, dataset_id, position),
    FOREIGN KEY (workspace_id, hash) REFERENCES dataset_examples (workspace_id, hash)
);
CREATE INDEX dataset_rows_hash ON dataset_rows (workspace_id, hash);

-- Rows that are no dataset's: of one that is being built, or of one that was deleted. They are taken away unless
-- the build that they belong to goes on.
CREATE TABLE dataset_loose (
    workspace_id TEXT   NOT NULL,
    dataset_id   TEXT   NOT NULL,
    since        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, dataset_id)
);

-- +goose Down
SELECT 1;
