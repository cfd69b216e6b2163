-- +goose Up

-- Logged exchanges, the narrow columns before the wide ones: what is counted and filtered never reads a message. at is
-- unique within a workspace as long as the clock does not go back, and is the order in which rows are listed. That a row
-- is entered once rests on the cursor, which commits with it, and on no key: each index is paid for by each row.
CREATE TABLE log_rows (
    workspace_id      TEXT    NOT NULL,
    at                BIGINT  NOT NULL,
    id                TEXT    NOT NULL,
    expires_at        BIGINT  NOT NULL,
    model             TEXT    NOT NULL,
    tag               TEXT    NOT NULL,
    segment           TEXT    NOT NULL,
    finish_reason     TEXT    NOT NULL,
    cached            BOOLEAN NOT NULL,
    segment_exact     TEXT    NOT NULL,
    trace_id          TEXT    NOT NULL,
    request_id        TEXT    NOT NULL,
    key_id            TEXT    NOT NULL,
    requested_model   TEXT    NOT NULL,
    alias             TEXT    NOT NULL,
    provider          TEXT    NOT NULL,
    fallback_from     TEXT    NOT NULL,
    stream            BOOLEAN NOT NULL,
    prompt_tokens     BIGINT  NOT NULL,
    completion_tokens BIGINT  NOT NULL,
    cost              BIGINT  NOT NULL,
    latency           BIGINT  NOT NULL,
    first_token       BIGINT  NOT NULL,
    chain             BYTEA   NOT NULL,
    response          BYTEA   NOT NULL,
    tools             BYTEA   NOT NULL,
    messages          BYTEA   NOT NULL
);

-- Rows are found along the index of the rarest filter, and along the first by none or by what most rows have: most have stopped, and
-- were not remembered. Each holds all that is filtered by, so that no row is read that is not wanted.
CREATE INDEX log_rows_all ON log_rows (workspace_id, at, cached, finish_reason, model, tag, segment, expires_at);
CREATE INDEX log_rows_model ON log_rows (workspace_id, model, at, cached, finish_reason, tag, segment, expires_at);
CREATE INDEX log_rows_segment ON log_rows (workspace_id, segment, at, cached, finish_reason, model, tag, expires_at);
CREATE INDEX log_rows_tag ON log_rows (workspace_id, tag, at, cached, finish_reason, model, segment, expires_at) WHERE tag <> '';
CREATE INDEX log_rows_finish ON log_rows (workspace_id, finish_reason, at, cached, model, tag, segment, expires_at) WHERE finish_reason <> 'stop';
CREATE INDEX log_rows_cached ON log_rows (workspace_id, cached, at, finish_reason, model, tag, segment, expires_at) WHERE cached;
CREATE INDEX log_rows_trace ON log_rows (workspace_id, trace_id, at) WHERE trace_id <> '';
CREATE INDEX log_rows_expiry ON log_rows (expires_at);

-- How many rows there are by one facet and hour, so that a total is a sum of a few numbers and not a count of rows. The
-- facet '' counts all.
CREATE TABLE log_counts (
    workspace_id TEXT   NOT NULL,
    facet        TEXT   NOT NULL,
    value        TEXT   NOT NULL,
    hour         BIGINT NOT NULL,
    n            BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, facet, value, hour)
);
CREATE INDEX log_counts_none ON log_counts (hour) WHERE n = 0;

-- Exact system prompts and the families they fell into, and what a family's first prompt is known by. They go with the last row that
-- has them.
CREATE TABLE log_variants (
    workspace_id  TEXT   NOT NULL,
    segment_exact TEXT   NOT NULL,
    segment       TEXT   NOT NULL,
    prompt        BYTEA  NOT NULL,
    first_at      BIGINT NOT NULL,
    last_at       BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, segment_exact)
);
CREATE INDEX log_variants_segment ON log_variants (workspace_id, segment, last_at);
CREATE INDEX log_variants_expiry ON log_variants (expires_at);
CREATE TABLE log_families (
    workspace_id TEXT   NOT NULL,
    segment      TEXT   NOT NULL,
    print        BYTEA  NOT NULL,
    expires_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, segment)
);
CREATE INDEX log_families_expiry ON log_families (expires_at);

-- The runs of agents, as far as their steps are logged.
CREATE TABLE log_traces (
    workspace_id      TEXT   NOT NULL,
    trace_id          TEXT   NOT NULL,
    first_at          BIGINT NOT NULL,
    last_at           BIGINT NOT NULL,
    steps             BIGINT NOT NULL,
    prompt_tokens     BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cost              BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, trace_id)
);
CREATE INDEX log_traces_last ON log_traces (workspace_id, last_at);
CREATE INDEX log_traces_none ON log_traces (last_at) WHERE steps = 0;

-- How far the spool of a data folder has been read.
CREATE TABLE log_cursors (
    source   TEXT   PRIMARY KEY,
    segment  BIGINT NOT NULL,
    position BIGINT NOT NULL,
    at       BIGINT NOT NULL
);

-- +goose Down
SELECT 1;
