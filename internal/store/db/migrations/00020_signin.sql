-- +goose Up

-- People's sessions on the dashboard. The secret of a session is in its browser alone. ended_at is 0 while it lasts.
CREATE TABLE sessions (
    id           TEXT   PRIMARY KEY,
    user_id      TEXT   NOT NULL REFERENCES users (id),
    digest       BYTEA  NOT NULL UNIQUE,
    method       TEXT   NOT NULL CHECK (method IN ('link', 'password', 'oidc')),
    address      TEXT   NOT NULL,
    agent        TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX sessions_user ON sessions (user_id, created_at, id);

-- One-time links. The token of a link is in its URL alone.
CREATE TABLE signin_links (
    id         TEXT   PRIMARY KEY,
    digest     BYTEA  NOT NULL UNIQUE,
    kind       TEXT   NOT NULL CHECK (kind IN ('sign_in', 'invite', 'reset')),
    user_id    TEXT   NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX signin_links_user ON signin_links (user_id, kind);
CREATE INDEX signin_links_expires ON signin_links (expires_at);

-- Who was asked to join a workspace, and the link that was made for it.
CREATE TABLE invitations (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    user_id      TEXT   NOT NULL REFERENCES users (id),
    role         TEXT   NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    link_id      TEXT   NOT NULL,
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX invitations_user ON invitations (workspace_id, user_id);
CREATE INDEX invitations_link ON invitations (link_id);

-- Passwords as PHC strings of argon2id.
CREATE TABLE passwords (
    user_id    TEXT   PRIMARY KEY REFERENCES users (id),
    phc        TEXT   NOT NULL,
    changed_at BIGINT NOT NULL
);

-- Sign-ins that were begun at an identity provider.
CREATE TABLE oidc_states (
    digest     BYTEA  PRIMARY KEY,
    nonce      TEXT   NOT NULL,
    verifier   TEXT   NOT NULL,
    expires_at BIGINT NOT NULL
);

-- The account at an identity provider with which a person signed in first: another one with the same address is refused.
CREATE TABLE oidc_subjects (
    issuer     TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    user_id    TEXT   NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);
CREATE UNIQUE INDEX oidc_subjects_user ON oidc_subjects (issuer, user_id);

-- +goose Down
SELECT 1;
