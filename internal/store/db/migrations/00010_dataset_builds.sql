-- +goose Up

-- Datasets that are being built, each by the job of the same id. The names are taken from here on. The recipe and the actor
-- are JSON. The row goes when the dataset is there, or some time after the job has failed.
CREATE TABLE dataset_builds (
    workspace_id TEXT NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT NOT NULL,
    name         TEXT NOT NULL,
    holdout_id   TEXT,
    holdout_name TEXT,
    recipe       TEXT NOT NULL,
    actor        TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- +goose Down
SELECT 1;
