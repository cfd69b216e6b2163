-- +goose Up

-- What was graded, as it was when it was graded: each once in a workspace, by a SHA-256 of what a judge can be shown of it. It goes with the last label that names it.
CREATE TABLE label_items (
    workspace_id TEXT  NOT NULL,
    hash         BYTEA NOT NULL,
    steps        BYTEA NOT NULL,
    PRIMARY KEY (workspace_id, hash)
);

-- People's grades. criterion_id is '' for one that is no judge's, request_id and trace_id where there is none. Of what was graded, each
-- judge has one label: two would be one truth, counted twice.
CREATE TABLE labels (
    workspace_id   TEXT    NOT NULL REFERENCES workspaces (workspace_id),
    id             TEXT    NOT NULL,
    criterion_id   TEXT    NOT NULL,
    request_id     TEXT    NOT NULL,
    trace_id       TEXT    NOT NULL,
    verdict        TEXT    NOT NULL CHECK (verdict IN ('pass', 'fail')),
    grade          DOUBLE PRECISION,
    critique       TEXT    NOT NULL,
    author         TEXT    NOT NULL,
    source         TEXT    NOT NULL,
    in_report_half BOOLEAN NOT NULL,
    straddles      BOOLEAN NOT NULL, -- ties conversations of both halves together
    item           BYTEA   NOT NULL,
    kind           TEXT    NOT NULL, -- of its adjudication, '' without one
    adjudicated    TEXT    NOT NULL, -- the verdict, '' when it was withdrawn
    note           TEXT    NOT NULL,
    adjudicated_by TEXT    NOT NULL,
    adjudicated_at BIGINT  NOT NULL,
    created_at     BIGINT  NOT NULL,
    PRIMARY KEY (workspace_id, id),
    CONSTRAINT labels_once UNIQUE (workspace_id, criterion_id, item),
    FOREIGN KEY (workspace_id, item) REFERENCES label_items (workspace_id, hash)
);
CREATE INDEX labels_created ON labels (workspace_id, created_at, id);
CREATE INDEX labels_criterion ON labels (workspace_id, criterion_id, id);
CREATE INDEX labels_listed ON labels (workspace_id, criterion_id, created_at, id);
CREATE INDEX labels_standing ON labels (workspace_id, criterion_id, kind, verdict, adjudicated, straddles);
CREATE INDEX labels_request ON labels (workspace_id, request_id) WHERE request_id <> '';
CREATE INDEX labels_trace ON labels (workspace_id, trace_id) WHERE trace_id <> '';
CREATE INDEX labels_item ON labels (workspace_id, item);

-- In which half a conversation stands, by the keys of its turns: those that a graded one is known by, and those that came before it.
-- It stays when labels go, so that what was once held out is held out when it is graded again.
CREATE TABLE label_halves (
    workspace_id TEXT    NOT NULL,
    turn         BYTEA   NOT NULL,
    earlier      BOOLEAN NOT NULL,
    half         BIGINT  NOT NULL, -- 0 tunes, 1 reports, 2 is tied to both
    shared       BIGINT  NOT NULL, -- how many are known by it, or came after it
    PRIMARY KEY (workspace_id, turn, earlier)
);

-- What halves are drawn with: nobody who grades can choose one.
CREATE TABLE label_secrets (
    workspace_id TEXT  PRIMARY KEY REFERENCES workspaces (workspace_id),
    secret       BYTEA NOT NULL
);

-- Judges. Filters, shots and monitoring are JSON.
CREATE TABLE criteria (
    workspace_id   TEXT             NOT NULL REFERENCES workspaces (workspace_id),
    id             TEXT             NOT NULL,
    name           TEXT             NOT NULL,
    rubric         TEXT             NOT NULL,
    judge_model    TEXT             NOT NULL,
    scale          TEXT             NOT NULL CHECK (scale IN ('binary', 'graded')),
    pass_threshold DOUBLE PRECISION NOT NULL,
    few_shot       BOOLEAN          NOT NULL,
    shots          TEXT             NOT NULL,
    filters        TEXT             NOT NULL,
    version        BIGINT           NOT NULL,
    monitoring     TEXT             NOT NULL,
    created_at     BIGINT           NOT NULL,
    updated_at     BIGINT           NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX criteria_created ON criteria (workspace_id, created_at, id);
CREATE INDEX criteria_monitored ON criteria (workspace_id, id) WHERE monitoring <> '';

-- Criteria that are deleted, and of which rows are left to be taken away.
CREATE TABLE criteria_deleted (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    since        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- The answers of judges, by what they were asked: nothing is paid for twice. One that is no verdict is kept for what asked, which
-- must not ask again after a restart, and for nobody else. expires_at is that of what was judged, 0 for what is kept.
CREATE TABLE judge_answers (
    workspace_id TEXT   NOT NULL,
    question     BYTEA  NOT NULL,
    criterion_id TEXT   NOT NULL,
    origin       TEXT   NOT NULL,
    request_id   TEXT   NOT NULL,
    opinion      TEXT   NOT NULL,
    failure      TEXT   NOT NULL,
    cost         BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, question)
);
CREATE INDEX judge_answers_criterion ON judge_answers (workspace_id, criterion_id);
CREATE INDEX judge_answers_expiry ON judge_answers (expires_at) WHERE expires_at > 0;

-- Runs of a judge over its labels. counts is what it found in each half, as JSON. aligned_at is 0 until the run is done.
CREATE TABLE calibrations (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    criterion_id TEXT   NOT NULL,
    version      BIGINT NOT NULL,
    judge_model  TEXT   NOT NULL,
    threshold    DOUBLE PRECISION NOT NULL,
    max_cost     BIGINT, -- NULL without one
    fresh        BOOLEAN NOT NULL, -- asks what was answered before, too
    counts       TEXT   NOT NULL,
    enrolled     TEXT   NOT NULL, -- the last label that has a row
    last         TEXT   NOT NULL, -- the last that is to have one
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    aligned_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX calibrations_criterion ON calibrations (workspace_id, criterion_id, created_at, id);
CREATE INDEX calibrations_aligned ON calibrations (workspace_id, criterion_id, aligned_at) WHERE aligned_at > 0;

-- What a judge said of each label. human is the verdict that it was held against, standing the one that holds now, '' when the
-- label was withdrawn or deleted. draw is the row's place in a blind sample. wrong and changed are columns because a planner can count
-- them: of a comparison of two columns it thinks that it holds for nearly all rows, and reads them all.
CREATE TABLE calibration_rows (
    workspace_id   TEXT             NOT NULL,
    calibration_id TEXT             NOT NULL,
    label_id       TEXT             NOT NULL,
    request_id     TEXT             NOT NULL,
    item           BYTEA            NOT NULL,
    in_report_half BOOLEAN          NOT NULL,
    shown          BOOLEAN          NOT NULL, -- to the judge, as an example: nothing is measured by it
    human          TEXT             NOT NULL,
    standing       TEXT             NOT NULL,
    ruling         TEXT             NOT NULL, -- the kind of the label's adjudication, '' without one
    draw           BIGINT           NOT NULL,
    pending        BOOLEAN          NOT NULL,
    judge          TEXT             NOT NULL,
    grade          DOUBLE PRECISION NOT NULL,
    critique       TEXT             NOT NULL,
    failure        TEXT             NOT NULL,
    wrong          BOOLEAN          GENERATED ALWAYS AS (judge <> human AND judge <> '' AND human <> '') STORED,
    changed        BOOLEAN          GENERATED ALWAYS AS (standing <> human) STORED,
    PRIMARY KEY (workspace_id, calibration_id, label_id)
);
CREATE INDEX calibration_rows_label ON calibration_rows (workspace_id, label_id);
CREATE INDEX calibration_rows_pending ON calibration_rows (workspace_id, calibration_id, label_id) WHERE pending;
CREATE INDEX calibration_rows_wrong ON calibration_rows (workspace_id, calibration_id, label_id) WHERE wrong;
CREATE INDEX calibration_rows_changed ON calibration_rows (workspace_id, calibration_id, label_id) WHERE changed;
CREATE INDEX calibration_rows_ruled ON calibration_rows (workspace_id, calibration_id, label_id) WHERE ruling <> '';
CREATE INDEX calibration_rows_draw ON calibration_rows (workspace_id, calibration_id, draw) WHERE judge = human;

-- Certificates, as they were signed. Nothing of one changes but that it is voided, once.
CREATE TABLE certificates (
    workspace_id   TEXT   NOT NULL,
    id             TEXT   NOT NULL,
    criterion_id   TEXT   NOT NULL,
    calibration_id TEXT   NOT NULL,
    version        BIGINT NOT NULL,
    edition        BIGINT NOT NULL, -- of the words in which judges are asked
    document       BYTEA  NOT NULL,
    key_id         TEXT   NOT NULL,
    jws            TEXT   NOT NULL,
    trust          TEXT   NOT NULL,
    holdout_active BOOLEAN NOT NULL,
    issued_at      BIGINT NOT NULL,
    voided_at      BIGINT NOT NULL,
    voided_reason  TEXT   NOT NULL,
    voided_by      TEXT   NOT NULL, -- labels, version or edition; '' while it is not
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX certificates_criterion ON certificates (workspace_id, criterion_id, issued_at);

-- Runs of a judge over a sample of logs, drafts of better rubrics, and of new criteria: what was asked and what came of it are JSON.
-- criterion_id is '' for drafts of new ones.
CREATE TABLE inquiries (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    kind         TEXT   NOT NULL CHECK (kind IN ('scan', 'improvement', 'suggestion')),
    criterion_id TEXT   NOT NULL,
    version      BIGINT NOT NULL,
    asked        TEXT   NOT NULL,
    result       TEXT   NOT NULL, -- '' until there is one
    created_by   TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX inquiries_criterion ON inquiries (workspace_id, criterion_id, kind, created_at, id);

-- What a judge said of logged exchanges, in a scan or watching traffic: run_id is the scan's, or the criterion's that watches.
CREATE TABLE judged_logs (
    workspace_id TEXT             NOT NULL,
    run_id       TEXT             NOT NULL,
    log_id       TEXT             NOT NULL,
    at           BIGINT           NOT NULL, -- when it was logged
    pending      BOOLEAN          NOT NULL,
    judge        TEXT             NOT NULL,
    grade        DOUBLE PRECISION NOT NULL,
    critique     TEXT             NOT NULL,
    failure      TEXT             NOT NULL,
    request_id   TEXT             NOT NULL,
    expires_at   BIGINT           NOT NULL,
    PRIMARY KEY (workspace_id, run_id, log_id)
);
CREATE INDEX judged_logs_pending ON judged_logs (workspace_id, run_id, log_id) WHERE pending;
CREATE INDEX judged_logs_verdict ON judged_logs (workspace_id, run_id, judge, log_id);
CREATE INDEX judged_logs_expiry ON judged_logs (expires_at);

-- How far a judge that watches traffic has come, and what it found in this window. Changing what it is told begins anew.
CREATE TABLE monitors (
    workspace_id TEXT   NOT NULL,
    criterion_id TEXT   NOT NULL,
    version      BIGINT NOT NULL,
    since        BIGINT NOT NULL, -- when the window began
    cursor       BIGINT NOT NULL, -- the newest exchange that was looked at
    seen         BIGINT NOT NULL,
    passes       BIGINT NOT NULL,
    judged       BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    cost         BIGINT NOT NULL,
    spent        BIGINT NOT NULL, -- of it in this window
    alarmed_at   BIGINT NOT NULL, -- 0 without an alarm
    reason       TEXT   NOT NULL,
    PRIMARY KEY (workspace_id, criterion_id)
);

-- +goose Down
SELECT 1;
