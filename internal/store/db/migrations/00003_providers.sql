-- +goose Up

-- Kinds of tokens that have prices of their own, and whose key it was.
ALTER TABLE usage_rows ADD COLUMN written      BIGINT  NOT NULL DEFAULT 0;
ALTER TABLE usage_rows ADD COLUMN audio_input  BIGINT  NOT NULL DEFAULT 0;
ALTER TABLE usage_rows ADD COLUMN audio_output BIGINT  NOT NULL DEFAULT 0;
ALTER TABLE usage_rows ADD COLUMN searches     BIGINT  NOT NULL DEFAULT 0;
ALTER TABLE usage_rows ADD COLUMN own_key      BOOLEAN NOT NULL DEFAULT FALSE;

ALTER TABLE workspace_settings ADD COLUMN cache BOOLEAN NOT NULL DEFAULT FALSE;

-- A workspace's own keys at providers, sealed for that workspace and provider: a row that is copied elsewhere does not
-- open.
CREATE TABLE provider_keys (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    provider     TEXT   NOT NULL,
    base_url     TEXT   NOT NULL,
    sealed       BYTEA  NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, provider)
);

-- +goose Down
SELECT 1;
