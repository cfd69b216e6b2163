-- +goose Up

-- A demo is marked, so that nobody takes its figures for those of real traffic. A workspace that was deleted keeps its row,
-- because the ledger and the audit trail name it; deleted_at is 0 while it stands.
ALTER TABLE workspaces ADD COLUMN demo BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE workspaces ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0;

-- Who asked for a demo, and what its job has made so far, as JSON. deletion is the id of the job that deletes it, or empty.
CREATE TABLE demos (
    workspace_id TEXT   PRIMARY KEY REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    user_id      TEXT   NOT NULL REFERENCES users (id),
    state        TEXT   NOT NULL,
    deletion     TEXT   NOT NULL DEFAULT '',
    created_at   BIGINT NOT NULL,
    deleted_at   BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX demos_user ON demos (user_id) WHERE deletion = '';
CREATE INDEX demos_made ON demos (user_id, created_at);
CREATE INDEX demos_deleted ON demos (deleted_at) WHERE deleted_at > 0;

-- +goose Down
SELECT 1;
