-- +goose Up

-- The limits of a key, or of a workspace where subject is empty. 0 limits nothing; a budget is in nano-dollars. models and
-- allowed_addresses are JSON arrays. What has no row has no limits.
CREATE TABLE traffic_limits (
    workspace_id        TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    subject             TEXT   NOT NULL,
    requests_per_minute BIGINT NOT NULL,
    tokens_per_minute   BIGINT NOT NULL,
    concurrency         BIGINT NOT NULL,
    budget_day          BIGINT NOT NULL,
    budget_month        BIGINT NOT NULL,
    models              TEXT   NOT NULL,
    scope               TEXT   NOT NULL,
    expires_at          BIGINT,
    allowed_addresses   TEXT   NOT NULL,
    PRIMARY KEY (workspace_id, subject)
);

-- How many things of a kind a workspace may store. What has no row has the default.
CREATE TABLE quotas (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    kind         TEXT   NOT NULL,
    most         BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, kind)
);

-- +goose Down
SELECT 1;
