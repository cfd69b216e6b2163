-- +goose Up

-- A tool of a customer that a model calls while it is trained. parameters is the JSON schema of its arguments; sealed is the
-- secret that calls are signed with.
CREATE TABLE environment_tools (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    description  TEXT   NOT NULL,
    endpoint_url TEXT   NOT NULL,
    parameters   TEXT   NOT NULL,
    timeout_ms   BIGINT NOT NULL,
    sealed       BYTEA  NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX environment_tools_name ON environment_tools (workspace_id, name);

-- +goose Down
SELECT 1;
