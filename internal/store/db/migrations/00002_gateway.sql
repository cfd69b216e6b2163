-- +goose Up

-- What each request used and cost. Rows may be pruned: the ledger stands without them. The price is the model's on
-- that day, as JSON.
CREATE TABLE usage_rows (
    request_id   TEXT    PRIMARY KEY,
    workspace_id TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    transfer_id  TEXT    NOT NULL,
    key_id       TEXT    NOT NULL,
    at           BIGINT  NOT NULL,
    route        TEXT    NOT NULL,
    model        TEXT    NOT NULL,
    requested    TEXT    NOT NULL,
    alias        TEXT    NOT NULL,
    provider     TEXT    NOT NULL,
    outcome      TEXT    NOT NULL,
    counted      BOOLEAN NOT NULL,
    input        BIGINT  NOT NULL,
    cached       BIGINT  NOT NULL,
    output       BIGINT  NOT NULL,
    reasoning    BIGINT  NOT NULL,
    price        TEXT    NOT NULL,
    cost         BIGINT  NOT NULL,
    charged      BIGINT  NOT NULL
);
CREATE INDEX usage_rows_workspace ON usage_rows (workspace_id, at, request_id);
CREATE INDEX usage_rows_transfer ON usage_rows (transfer_id);

-- How far the money journal of a data folder has been posted.
CREATE TABLE journal_cursors (
    journal_id TEXT   PRIMARY KEY,
    segment    BIGINT NOT NULL,
    position   BIGINT NOT NULL,
    at         BIGINT NOT NULL
);

-- What a workspace has set; a workspace without a row has set nothing.
CREATE TABLE workspace_settings (
    workspace_id       TEXT   PRIMARY KEY REFERENCES workspaces (workspace_id),
    default_max_tokens BIGINT NOT NULL,
    updated_at         BIGINT NOT NULL
);

CREATE TABLE aliases (
    workspace_id    TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    name            TEXT   NOT NULL,
    target_model    TEXT   NOT NULL,
    description     TEXT   NOT NULL,
    canary_model    TEXT   NOT NULL,
    canary_percent  BIGINT NOT NULL,
    fallback_models TEXT   NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, name)
);

-- The history of one subject.
CREATE INDEX audit_entries_subject ON audit_entries (workspace_id, subject, at, id);

-- +goose Down
SELECT 1;
