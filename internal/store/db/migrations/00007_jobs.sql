-- +goose Up

-- Background work. The id is that of what the work is for, such as an evaluation. claim is the token of the one run that may write,
-- or of the rest between two tries; empty when nobody has the job in hand. failure is what a caller may read.
CREATE TABLE jobs (
    workspace_id     TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    id               TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ('QUEUED', 'RUNNING', 'DONE', 'FAILED', 'CANCELLED')),
    done             BIGINT  NOT NULL CHECK (done >= 0),
    total            BIGINT  NOT NULL CHECK (total >= 0),
    cost             BIGINT  NOT NULL CHECK (cost >= 0),
    estimate         BIGINT  NOT NULL,
    attempts         BIGINT  NOT NULL,
    losses           BIGINT  NOT NULL,
    claim            TEXT    NOT NULL,
    cancel_requested BOOLEAN NOT NULL,
    failure          TEXT    NOT NULL,
    created_at       BIGINT  NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT,
    PRIMARY KEY (workspace_id, id),
    CHECK (status <> 'RUNNING' OR claim <> ''),
    CHECK (finished_at IS NULL OR claim = ''),
    CHECK ((finished_at IS NOT NULL) = (status IN ('DONE', 'FAILED', 'CANCELLED')))
);
-- What waits, and what is in hand: neither grows with what has ended.
CREATE INDEX jobs_waiting ON jobs (workspace_id, created_at, id) WHERE status = 'QUEUED' AND claim = '';
CREATE INDEX jobs_claimed ON jobs (claim) WHERE claim <> '';

-- +goose Down
SELECT 1;
