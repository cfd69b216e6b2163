-- +goose Up

-- Queues of items that people grade. criterion_id is '' for grades that are for no judge. source is JSON. closed_at is 0
-- while the queue is open.
CREATE TABLE review_queues (
    workspace_id     TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    id               TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    criterion_id     TEXT    NOT NULL,
    instructions     TEXT    NOT NULL,
    graders_per_item BIGINT  NOT NULL,
    blind            BOOLEAN NOT NULL,
    lease_minutes    BIGINT  NOT NULL,
    source           TEXT    NOT NULL,
    created_by       TEXT    NOT NULL,
    created_at       BIGINT  NOT NULL,
    closed_at        BIGINT  NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX review_queues_criterion ON review_queues (workspace_id, criterion_id);

-- What fills a queue: one row for each time that items are added. Its id is that of the job.
CREATE TABLE review_fills (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    queue_id     TEXT   NOT NULL,
    source       TEXT   NOT NULL,
    added        BIGINT NOT NULL,
    missing      BIGINT NOT NULL, -- named items that are not logged
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX review_fills_queue ON review_fills (workspace_id, queue_id, id);

-- What is graded: a reference to a logged exchange, a logged run, or the item of a label. judge, grade and critique are what
-- a judge said of it; judge is '' without a verdict. expires_at is that of the log, 0 where it is not known.
CREATE TABLE review_items (
    workspace_id TEXT             NOT NULL,
    queue_id     TEXT             NOT NULL,
    ref          TEXT             NOT NULL,
    id           TEXT             NOT NULL,
    position     BIGINT           NOT NULL,
    steps        BIGINT           NOT NULL, -- of a run, when it was added
    reason       TEXT             NOT NULL,
    judge        TEXT             NOT NULL,
    grade        DOUBLE PRECISION NOT NULL,
    critique     TEXT             NOT NULL,
    expires_at   BIGINT           NOT NULL,
    state        TEXT             NOT NULL, -- open, done or expired
    conflict     BOOLEAN          NOT NULL,
    lost         TEXT             NOT NULL, -- why it expired
    PRIMARY KEY (workspace_id, queue_id, id)
);
CREATE UNIQUE INDEX review_items_ref ON review_items (workspace_id, queue_id, ref);
CREATE INDEX review_items_state ON review_items (workspace_id, queue_id, state, position, conflict);
CREATE INDEX review_items_expiry ON review_items (expires_at) WHERE expires_at > 0;

-- An item as one person has it: claimed, graded or skipped. Without a row it is open for that person.
CREATE TABLE review_grades (
    workspace_id TEXT             NOT NULL,
    queue_id     TEXT             NOT NULL,
    item_id      TEXT             NOT NULL,
    user_id      TEXT             NOT NULL,
    state        TEXT             NOT NULL,
    claim        TEXT             NOT NULL, -- fences the claims of the same person
    lease_until  BIGINT           NOT NULL,
    verdict      TEXT             NOT NULL,
    grade        DOUBLE PRECISION,
    critique     TEXT             NOT NULL, -- or why it was skipped
    unsure       BOOLEAN          NOT NULL,
    label_id     TEXT             NOT NULL,
    at           BIGINT           NOT NULL,
    PRIMARY KEY (workspace_id, queue_id, item_id, user_id)
);
CREATE INDEX review_grades_user ON review_grades (workspace_id, queue_id, user_id, state, at);
CREATE INDEX review_grades_label ON review_grades (workspace_id, label_id) WHERE label_id <> '';
CREATE INDEX review_grades_lease ON review_grades (lease_until) WHERE state = 'claimed';

-- People who may grade in a queue, members of the workspace or not.
CREATE TABLE review_grants (
    workspace_id TEXT   NOT NULL,
    queue_id     TEXT   NOT NULL,
    user_id      TEXT   NOT NULL REFERENCES users (id),
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, queue_id, user_id)
);
CREATE INDEX review_grants_user ON review_grants (user_id);

-- Items that are offered to these people alone.
CREATE TABLE review_assignments (
    workspace_id TEXT NOT NULL,
    queue_id     TEXT NOT NULL,
    item_id      TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    PRIMARY KEY (workspace_id, queue_id, item_id, user_id)
);
CREATE INDEX review_assignments_user ON review_assignments (workspace_id, queue_id, user_id);

-- +goose Down
SELECT 1;
