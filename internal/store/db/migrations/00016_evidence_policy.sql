-- +goose Up

-- Which proof a workspace asks for before an alias may be repointed. What has no row asks for none.
CREATE TABLE evidence_policies (
    workspace_id                TEXT             NOT NULL PRIMARY KEY REFERENCES workspaces (workspace_id),
    required                    BOOLEAN          NOT NULL,
    max_age_days                BIGINT           NOT NULL,
    min_trust                   TEXT             NOT NULL,
    max_regression              DOUBLE PRECISION NOT NULL,
    confidence                  DOUBLE PRECISION NOT NULL,
    max_unproven_canary_percent BIGINT           NOT NULL,
    updated_at                  BIGINT           NOT NULL
);

-- The model that a name stands for, the one before the last repoint (empty for none), and since when. A row outlives its
-- alias. Models before the last repoints of existing aliases are not known.
CREATE TABLE alias_incumbents (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    name         TEXT   NOT NULL,
    model        TEXT   NOT NULL,
    previous     TEXT   NOT NULL,
    since        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, name)
);

INSERT INTO alias_incumbents (workspace_id, name, model, previous, since)
SELECT workspace_id, name, CASE WHEN canary_percent = 100 THEN canary_model ELSE target_model END, '', updated_at
FROM aliases;

-- +goose Down
SELECT 1;
