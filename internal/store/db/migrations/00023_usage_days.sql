-- +goose Up

-- What the requests of a UTC day used and cost, by model, key and tag, added up in the transaction that inserts their
-- usage rows. day counts the days since 1970. A tag is empty for requests without one, and for those before this
-- migration.
CREATE TABLE usage_days (
    workspace_id TEXT   NOT NULL,
    day          BIGINT NOT NULL,
    model        TEXT   NOT NULL,
    key_id       TEXT   NOT NULL,
    tag          TEXT   NOT NULL,
    requests     BIGINT NOT NULL,
    errors       BIGINT NOT NULL,
    input        BIGINT NOT NULL,
    cached       BIGINT NOT NULL,
    output       BIGINT NOT NULL,
    cost         BIGINT NOT NULL,
    charged      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, day, model, key_id, tag)
);
INSERT INTO usage_days (
    workspace_id, day, model, key_id, tag, requests, errors, input, cached, output, cost, charged
) SELECT
    workspace_id, at / 86400000000, model, key_id, '', COUNT(*),
    SUM(CASE WHEN outcome IN ('died', 'nothing', 'broken', 'killed') THEN 1 ELSE 0 END),
    SUM(input), SUM(cached), SUM(output), SUM(cost), SUM(charged)
FROM usage_rows GROUP BY workspace_id, at / 86400000000, model, key_id;

-- The days that are over, added up once more by what a series is drawn of: grp is the value of what it is grouped by,
-- pick that of the filter. A year of many models, keys and tags is then a few thousand rows.
CREATE TABLE usage_sums (
    workspace_id TEXT   NOT NULL,
    cut          TEXT   NOT NULL,
    pick         TEXT   NOT NULL,
    day          BIGINT NOT NULL,
    grp          TEXT   NOT NULL,
    requests     BIGINT NOT NULL,
    errors       BIGINT NOT NULL,
    input        BIGINT NOT NULL,
    cached       BIGINT NOT NULL,
    output       BIGINT NOT NULL,
    cost         BIGINT NOT NULL,
    charged      BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, cut, pick, day, grp)
);

-- The days of a workspace before this one are in usage_sums.
CREATE TABLE usage_closed (
    workspace_id TEXT   PRIMARY KEY,
    before       BIGINT NOT NULL
);

-- A page's query string that a person has named, for themselves or for the workspace.
CREATE TABLE saved_views (
    workspace_id TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT    NOT NULL,
    owner_id     TEXT    NOT NULL,
    page         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    query        TEXT    NOT NULL,
    shared       BOOLEAN NOT NULL,
    created_at   BIGINT  NOT NULL,
    updated_at   BIGINT  NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- The latest jobs of a workspace, and those that failed.
CREATE INDEX jobs_created ON jobs (workspace_id, created_at);
CREATE INDEX jobs_failed ON jobs (workspace_id, finished_at) WHERE status = 'FAILED';

-- +goose Down
SELECT 1;
