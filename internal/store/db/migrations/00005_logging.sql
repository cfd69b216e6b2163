-- +goose Up

-- For how many days a workspace's exchanges are kept; 0 when it wants none logged.
ALTER TABLE workspace_settings ADD COLUMN log_retention_days BIGINT NOT NULL DEFAULT 0;

-- +goose Down
SELECT 1;
