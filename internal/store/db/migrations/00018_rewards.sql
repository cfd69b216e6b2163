-- +goose Up

-- A reward session scores a trainer's completions. judges are the judges that it is scored by, with the certificates that
-- are pinned, as JSON. ended_at is 0 while it is active, and reason says why it ended where the status does not.
-- The anchor's columns are empty and 0 without an anchor; held_at is 0 while the session is not held. purged_at is 0 while
-- its texts are kept; purging says that some may be left to delete.
CREATE TABLE reward_sessions (
    workspace_id        TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    id                  TEXT    NOT NULL,
    label               TEXT    NOT NULL,
    status              TEXT    NOT NULL,
    reason              TEXT    NOT NULL,
    agentic             BOOLEAN NOT NULL,
    mode                TEXT    NOT NULL,
    judges              TEXT    NOT NULL,
    budget              BIGINT  NOT NULL,
    task_count          BIGINT  NOT NULL,
    task_bytes          BIGINT  NOT NULL,
    scored              BIGINT  NOT NULL,
    anchor_criterion_id TEXT    NOT NULL,
    anchor              TEXT    NOT NULL,
    sample_size         BIGINT  NOT NULL,
    every               BIGINT  NOT NULL,
    process             BIGINT  NOT NULL,
    evidence            TEXT    NOT NULL,
    checks              BIGINT  NOT NULL,
    checked_at_item     BIGINT  NOT NULL,
    held_at             BIGINT  NOT NULL,
    held_reason         TEXT    NOT NULL,
    pinned_step         TEXT    NOT NULL,
    created_by          TEXT    NOT NULL,
    created_at          BIGINT  NOT NULL,
    expires_at          BIGINT  NOT NULL,
    ended_at            BIGINT  NOT NULL,
    purged_at           BIGINT  NOT NULL,
    purging             BOOLEAN NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX reward_sessions_created ON reward_sessions (workspace_id, created_at);
CREATE INDEX reward_sessions_expiry ON reward_sessions (expires_at) WHERE ended_at = 0;
CREATE INDEX reward_sessions_kept ON reward_sessions (workspace_id, ended_at, task_bytes) WHERE purged_at = 0;
CREATE INDEX reward_sessions_retention ON reward_sessions (ended_at) WHERE purged_at = 0;
CREATE INDEX reward_sessions_purging ON reward_sessions (workspace_id, id) WHERE purging;

-- The tasks that a trainer stored with a session, in their order.
CREATE TABLE reward_tasks (
    workspace_id TEXT   NOT NULL,
    session_id   TEXT   NOT NULL,
    position     BIGINT NOT NULL,
    task         TEXT   NOT NULL,
    PRIMARY KEY (workspace_id, session_id, position)
);

-- The prompts and completions of a session, each stored once.
CREATE TABLE reward_texts (
    workspace_id TEXT  NOT NULL,
    session_id   TEXT  NOT NULL,
    digest       BYTEA NOT NULL,
    body         TEXT  NOT NULL,
    PRIMARY KEY (workspace_id, session_id, digest)
);

-- Every item that was scored, by what makes a score idempotent: step, id and content. position is the order of scoring.
-- reward is null where a judge failed; such an item is judged again when it is sent again. grades and flags are JSON.
CREATE TABLE reward_items (
    workspace_id TEXT   NOT NULL,
    session_id   TEXT   NOT NULL,
    step         TEXT   NOT NULL,
    item_id      TEXT   NOT NULL,
    content      BYTEA  NOT NULL,
    position     BIGINT NOT NULL,
    prompt       BYTEA  NOT NULL,
    completion   BYTEA  NOT NULL,
    label        TEXT   NOT NULL,
    reward       DOUBLE PRECISION,
    verdict      TEXT   NOT NULL,
    grades       TEXT   NOT NULL,
    flags        TEXT   NOT NULL,
    scored_at    BIGINT NOT NULL,
    checked      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, session_id, step, item_id, content)
);
CREATE UNIQUE INDEX reward_items_order ON reward_items (workspace_id, session_id, position);
CREATE INDEX reward_items_step ON reward_items (workspace_id, session_id, step, position);
CREATE INDEX reward_items_checked ON reward_items (workspace_id, session_id, prompt, completion) WHERE checked > 0;

-- What the anchor checked, check by check. process counts from 1; a release begins the next one. A check is pending, with
-- done_at 0, from its draw until the anchor has judged what it drew: reward_items.checked names it. A session has one
-- pending check at most. One that was dropped, because the session ended or was held first, has n 0.
CREATE TABLE reward_checks (
    workspace_id  TEXT             NOT NULL,
    session_id    TEXT             NOT NULL,
    number        BIGINT           NOT NULL,
    process       BIGINT           NOT NULL,
    step          TEXT             NOT NULL,
    requested     BOOLEAN          NOT NULL, -- by somebody; the others are made by count
    at            BIGINT           NOT NULL,
    done_at       BIGINT           NOT NULL,
    n             BIGINT           NOT NULL,
    masked        BIGINT           NOT NULL,
    reward_passes BIGINT           NOT NULL,
    anchor_passes BIGINT           NOT NULL,
    anchor_failed BIGINT           NOT NULL,
    only_reward   BIGINT           NOT NULL,
    only_anchor   BIGINT           NOT NULL,
    corrected     BOOLEAN          NOT NULL,
    anchor_rate   DOUBLE PRECISION NOT NULL,
    lowest        DOUBLE PRECISION NOT NULL,
    highest       DOUBLE PRECISION NOT NULL,
    evidence      DOUBLE PRECISION NOT NULL,
    held          BOOLEAN          NOT NULL,
    PRIMARY KEY (workspace_id, session_id, number)
);
CREATE UNIQUE INDEX reward_checks_pending ON reward_checks (workspace_id, session_id) WHERE done_at = 0;

-- Tokens that may score in one session and do nothing else. Only a hash is stored. A revoked token has no row.
CREATE TABLE reward_tokens (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    session_id   TEXT   NOT NULL,
    hash         BYTEA  NOT NULL UNIQUE,
    name         TEXT   NOT NULL,
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, session_id, id)
);

-- +goose Down
SELECT 1;
