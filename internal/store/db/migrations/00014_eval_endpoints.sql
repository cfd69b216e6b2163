-- +goose Up

-- A workspace's own servers, which answer in evals. The key, if there is one, is sealed for its workspace, endpoint and
-- URL: a row that is copied or changed does not open.
CREATE TABLE eval_endpoints (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    base_url     TEXT   NOT NULL,
    model        TEXT   NOT NULL,
    sealed       BYTEA,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX eval_endpoints_name ON eval_endpoints (workspace_id, name);

-- +goose Down
SELECT 1;
