-- +goose Up

-- Versions of change: one row that counts, and what each version touched.
CREATE TABLE feed_head (
    id      BIGINT PRIMARY KEY,
    version BIGINT NOT NULL
);
INSERT INTO feed_head (id, version) VALUES (1, 0);

CREATE TABLE feed_changes (
    version      BIGINT NOT NULL,
    seq          BIGINT NOT NULL,
    kind         TEXT   NOT NULL,
    workspace_id TEXT   NOT NULL,
    subject      TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (version, seq)
);
CREATE INDEX feed_changes_at ON feed_changes (at);

-- Data keys, each wrapped by the root key that stands outside the database.
CREATE TABLE vault_keys (
    id         BIGINT PRIMARY KEY,
    root_id    TEXT   NOT NULL,
    wrapped    BYTEA  NOT NULL,
    created_at BIGINT NOT NULL,
    wrapped_at BIGINT NOT NULL
);

CREATE TABLE workspaces (
    workspace_id TEXT   PRIMARY KEY,
    name         TEXT   NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL
);

CREATE TABLE users (
    id         TEXT   PRIMARY KEY,
    email      TEXT   NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

CREATE TABLE members (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    user_id      TEXT   NOT NULL REFERENCES users (id),
    role         TEXT   NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
);

CREATE TABLE api_keys (
    id           TEXT   PRIMARY KEY,
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    user_id      TEXT   NOT NULL REFERENCES users (id),
    name         TEXT   NOT NULL,
    digest       BYTEA  NOT NULL UNIQUE,
    hint         TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT,
    revoked_at   BIGINT
);
CREATE INDEX api_keys_workspace ON api_keys (workspace_id, created_at, id);

-- Who changed what, written with the change itself.
CREATE TABLE audit_entries (
    id           TEXT   PRIMARY KEY,
    workspace_id TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    actor_kind   TEXT   NOT NULL,
    actor_user   TEXT   NOT NULL,
    actor_key    TEXT   NOT NULL,
    request_id   TEXT   NOT NULL,
    action       TEXT   NOT NULL,
    subject      TEXT   NOT NULL,
    before_json  BYTEA,
    after_json   BYTEA
);
CREATE INDEX audit_entries_workspace ON audit_entries (workspace_id, at, id);

-- Double entry: the lines of a transfer sum to zero. Amounts are nano-dollars.
CREATE TABLE ledger_entries (
    transfer_id  TEXT   NOT NULL,
    line         BIGINT NOT NULL,
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    account      TEXT   NOT NULL,
    amount       BIGINT NOT NULL,
    kind         TEXT   NOT NULL,
    memo         TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (transfer_id, line)
);
CREATE INDEX ledger_entries_workspace ON ledger_entries (workspace_id, account);

CREATE TABLE ledger_balances (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    account      TEXT   NOT NULL,
    amount       BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, account),
    CHECK (account <> 'wallet' OR amount >= 0)
);

-- The answer that an Idempotency-Key got; no answer is kept when it showed a secret.
CREATE TABLE idempotency_keys (
    workspace_id TEXT   NOT NULL,
    route        TEXT   NOT NULL,
    key          TEXT   NOT NULL,
    body_sha256  BYTEA  NOT NULL,
    status       BIGINT NOT NULL,
    answer       BYTEA,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, route, key)
);
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);

-- +goose Down
SELECT 1;
