-- +goose Up

-- Long texts are the last columns: SQLite reads a row up to the column that is asked for.

-- Evals: a baseline and its candidates, compared on the same cases. request is what was asked for, without the cases, and
-- result what came of it, '' until the eval is done; both are JSON. criterion_id and certificate_id are '' where there is
-- none. The certificate is the one at the start: what is proven is judged by the one in force.
CREATE TABLE evals (
    workspace_id   TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id             TEXT   NOT NULL,
    name           TEXT   NOT NULL,
    source         TEXT   NOT NULL CHECK (source IN ('logs', 'dataset', 'inline')), -- of the cases
    request        TEXT   NOT NULL,
    criterion_id   TEXT   NOT NULL,
    version        BIGINT NOT NULL, -- of the criterion
    certificate_id TEXT   NOT NULL,
    cases          BIGINT NOT NULL,
    left_out       BIGINT NOT NULL, -- cases that repeat a question or a conversation
    result         TEXT   NOT NULL,
    created_by     TEXT   NOT NULL,
    created_at     BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX evals_created ON evals (workspace_id, created_at, id);

-- Which models evals compare. model is the candidate's number, from 1 on. failure says why it failed as a whole, or ''.
CREATE TABLE eval_pairs (
    workspace_id TEXT   NOT NULL,
    eval_id      TEXT   NOT NULL,
    model        BIGINT NOT NULL,
    baseline     TEXT   NOT NULL,
    candidate    TEXT   NOT NULL,
    failure      TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, eval_id, model)
);
CREATE INDEX eval_pairs_models ON eval_pairs (workspace_id, baseline, candidate, created_at);

-- The cases of evals, copied when the eval is made: of logs also the answer that was logged. baseline is the verdict on the
-- baseline's answer in a criterion's run. expires_at is that of the logged exchange, 0 for texts that are kept, and -1
-- when the texts have been deleted.
CREATE TABLE eval_cases (
    workspace_id   TEXT    NOT NULL,
    eval_id        TEXT    NOT NULL,
    position       BIGINT  NOT NULL,
    case_id        TEXT    NOT NULL,
    pending        BOOLEAN NOT NULL,
    request_id     TEXT    NOT NULL,
    segment        TEXT    NOT NULL,
    logged_model   TEXT    NOT NULL,
    logged_cost    BIGINT  NOT NULL,
    logged_latency BIGINT  NOT NULL, -- in microseconds
    baseline       TEXT    NOT NULL CHECK (baseline IN ('', 'pass', 'fail')),
    expires_at     BIGINT  NOT NULL,
    messages       BYTEA   NOT NULL,
    tools          BYTEA   NOT NULL,
    logged         BYTEA   NOT NULL,
    PRIMARY KEY (workspace_id, eval_id, position),
    CONSTRAINT eval_cases_id UNIQUE (workspace_id, eval_id, case_id)
);
CREATE INDEX eval_cases_pending ON eval_cases (workspace_id, eval_id, position) WHERE pending;
CREATE INDEX eval_cases_expiry ON eval_cases (expires_at) WHERE expires_at > 0;

-- What models answered, stored before it is charged: no answer is paid for twice. model is 0 for the baseline. failure says
-- why there is no answer, or ''. reused answers are those that were logged.
CREATE TABLE eval_answers (
    workspace_id  TEXT    NOT NULL,
    eval_id       TEXT    NOT NULL,
    position      BIGINT  NOT NULL,
    model         BIGINT  NOT NULL,
    reused        BOOLEAN NOT NULL,
    cost          BIGINT  NOT NULL,
    latency       BIGINT  NOT NULL, -- in microseconds
    request_id    TEXT    NOT NULL,
    finish_reason TEXT    NOT NULL,
    failure       TEXT    NOT NULL,
    answer        BYTEA   NOT NULL, -- the assistant's message
    PRIMARY KEY (workspace_id, eval_id, position, model)
);

-- What judges said. In a comparison model is the candidate and swapped tells the order in which the answers were shown,
-- stored before it is charged; in a criterion's run model may be 0, and the cost is that of the answer when it was given.
CREATE TABLE eval_verdicts (
    workspace_id TEXT             NOT NULL,
    eval_id      TEXT             NOT NULL,
    position     BIGINT           NOT NULL,
    model        BIGINT           NOT NULL,
    swapped      BOOLEAN          NOT NULL,
    verdict      TEXT             NOT NULL CHECK (verdict IN ('', 'A', 'B', 'tie', 'pass', 'fail')),
    grade        DOUBLE PRECISION NOT NULL,
    cost         BIGINT           NOT NULL,
    request_id   TEXT             NOT NULL,
    failure      TEXT             NOT NULL,
    critique     TEXT             NOT NULL,
    PRIMARY KEY (workspace_id, eval_id, position, model, swapped)
);

-- What came of each case for each candidate. baseline and candidate are the verdicts of a criterion's run. regression orders
-- the cases: the higher, the worse for the candidate.
CREATE TABLE eval_outcomes (
    workspace_id TEXT             NOT NULL,
    eval_id      TEXT             NOT NULL,
    position     BIGINT           NOT NULL,
    model        BIGINT           NOT NULL,
    outcome      TEXT             NOT NULL CHECK (outcome IN ('win', 'loss', 'tie', 'failed')),
    flipped      BOOLEAN          NOT NULL,
    baseline     TEXT             NOT NULL,
    candidate    TEXT             NOT NULL,
    regression   DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (workspace_id, eval_id, position, model)
);
CREATE INDEX eval_outcomes_listed ON eval_outcomes (workspace_id, eval_id, model, position);
CREATE INDEX eval_outcomes_filtered ON eval_outcomes (workspace_id, eval_id, model, outcome, position);
CREATE INDEX eval_outcomes_worst ON eval_outcomes (workspace_id, eval_id, regression, position, model);

-- +goose Down
SELECT 1;
