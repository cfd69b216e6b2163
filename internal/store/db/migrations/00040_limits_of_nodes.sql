-- +goose Up

-- What each server counts against the limits of keys and workspaces, for the others: requests and tokens of the last
-- minute, and requests that run. subject is the id of a key or a workspace. seen_at is by the database's clock.
CREATE TABLE meter_counts (
    subject  TEXT   NOT NULL,
    node     TEXT   NOT NULL,
    epoch    BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    tokens   BIGINT NOT NULL,
    running  BIGINT NOT NULL,
    seen_at  BIGINT NOT NULL,
    PRIMARY KEY (subject, node)
);
CREATE INDEX meter_counts_seen ON meter_counts (seen_at);

-- What keys spent of their budgets on a UTC day, by the journal that posted it, in the transaction that posted it. It is
-- written on PostgreSQL alone, where a server must hear of what the others spend. posted_at is by the database's clock.
CREATE TABLE budget_days (
    workspace_id TEXT   NOT NULL,
    key_id       TEXT   NOT NULL,
    day          BIGINT NOT NULL,
    node         TEXT   NOT NULL,
    spent        BIGINT NOT NULL,
    posted_at    BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, day, key_id, node)
);
CREATE INDEX budget_days_posted ON budget_days (posted_at);

-- LIKE ignores case on SQLite, which does not need these rows.
INSERT INTO budget_days (workspace_id, key_id, day, node, spent, posted_at)
SELECT workspace_id, key_id, at / 86400000000, '',
    SUM(CASE WHEN outcome = 'abandoned' AND charged = 0 THEN cost ELSE charged END), 0
FROM usage_rows
WHERE NOT 'a' LIKE 'A' AND at >= (SELECT MAX(at) FROM usage_rows) - 2678400000000
GROUP BY workspace_id, key_id, at / 86400000000;

-- +goose Down
SELECT 1;
