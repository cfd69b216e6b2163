-- +goose Up

-- Each person has one label of an item for a judge; before, a judge had one label of an item. SQLite cannot drop a
-- constraint, so that the table is made anew.
CREATE TABLE labels_new (
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
    CONSTRAINT labels_key PRIMARY KEY (workspace_id, id),
    CONSTRAINT labels_one_each UNIQUE (workspace_id, criterion_id, item, author),
    FOREIGN KEY (workspace_id, item) REFERENCES label_items (workspace_id, hash)
);
INSERT INTO labels_new (workspace_id, id, criterion_id, request_id, trace_id, verdict, grade, critique, author, source,
        in_report_half, straddles, item, kind, adjudicated, note, adjudicated_by, adjudicated_at, created_at)
    SELECT workspace_id, id, criterion_id, request_id, trace_id, verdict, grade, critique, author, source,
        in_report_half, straddles, item, kind, adjudicated, note, adjudicated_by, adjudicated_at, created_at
    FROM labels;
DROP TABLE labels;
ALTER TABLE labels_new RENAME TO labels;
CREATE INDEX labels_created ON labels (workspace_id, created_at, id);
CREATE INDEX labels_criterion ON labels (workspace_id, criterion_id, id);
CREATE INDEX labels_listed ON labels (workspace_id, criterion_id, created_at, id);
CREATE INDEX labels_request ON labels (workspace_id, request_id) WHERE request_id <> '';
CREATE INDEX labels_trace ON labels (workspace_id, trace_id) WHERE trace_id <> '';
CREATE INDEX labels_item ON labels (workspace_id, item);

-- What the labels of an item say together, for one judge: the verdict after adjudication, or of the majority. It is ''
-- when people are evenly split (tied), and when the item was withdrawn. label_id is the label that can be adjudicated,
-- made_by the one that the row was made with.
CREATE TABLE label_consensus (
    workspace_id   TEXT    NOT NULL,
    criterion_id   TEXT    NOT NULL,
    item           BYTEA   NOT NULL,
    made_by        TEXT    NOT NULL,
    label_id       TEXT    NOT NULL,
    verdict        TEXT    NOT NULL,
    ruling         TEXT    NOT NULL, -- the kind of the adjudication that decides, '' without one
    tied           BOOLEAN NOT NULL,
    graders        BIGINT  NOT NULL, -- how many labels the item has
    in_report_half BOOLEAN NOT NULL,
    straddles      BOOLEAN NOT NULL,
    PRIMARY KEY (workspace_id, criterion_id, item)
);
INSERT INTO label_consensus (workspace_id, criterion_id, item, made_by, label_id, verdict, ruling, tied, graders,
        in_report_half, straddles)
    SELECT workspace_id, criterion_id, item, id, id, CASE WHEN kind = '' THEN verdict ELSE adjudicated END, kind, FALSE,
        1, in_report_half, straddles
    FROM labels;
CREATE INDEX label_consensus_made ON label_consensus (workspace_id, criterion_id, made_by);
CREATE INDEX label_consensus_verdict ON label_consensus (workspace_id, criterion_id, verdict, tied, straddles, in_report_half);
CREATE INDEX label_consensus_shared ON label_consensus (workspace_id, criterion_id, item) WHERE graders > 1;

-- How many items were left out of a calibration, because people are evenly split over them.
ALTER TABLE calibrations ADD COLUMN ties BIGINT NOT NULL DEFAULT 0;

-- The rows of a calibration are of items; before, they were of labels. label_id is the label of the item that can be
-- adjudicated, and another when that one is deleted or another is ruled on.
CREATE TABLE calibration_rows_new (
    workspace_id   TEXT             NOT NULL,
    calibration_id TEXT             NOT NULL,
    item           BYTEA            NOT NULL,
    label_id       TEXT             NOT NULL,
    request_id     TEXT             NOT NULL,
    in_report_half BOOLEAN          NOT NULL,
    shown          BOOLEAN          NOT NULL, -- to the judge, as an example: nothing is measured by it
    human          TEXT             NOT NULL, -- the verdict that the judge was held against
    standing       TEXT             NOT NULL, -- the one that holds now
    ruling         TEXT             NOT NULL, -- the kind of the adjudication, '' without one
    draw           BIGINT           NOT NULL,
    pending        BOOLEAN          NOT NULL,
    judge          TEXT             NOT NULL,
    grade          DOUBLE PRECISION NOT NULL,
    critique       TEXT             NOT NULL,
    failure        TEXT             NOT NULL,
    wrong          BOOLEAN          GENERATED ALWAYS AS (judge <> human AND judge <> '' AND human <> '') STORED,
    changed        BOOLEAN          GENERATED ALWAYS AS (standing <> human) STORED,
    CONSTRAINT calibration_rows_key PRIMARY KEY (workspace_id, calibration_id, item)
);
-- There is one row for each item. Should there be two, because a clock was set back, the later label has it.
INSERT INTO calibration_rows_new (workspace_id, calibration_id, item, label_id, request_id, in_report_half, shown,
        human, standing, ruling, draw, pending, judge, grade, critique, failure)
    SELECT workspace_id, calibration_id, item, label_id, request_id, in_report_half, shown,
        human, standing, ruling, draw, pending, judge, grade, critique, failure
    FROM calibration_rows WHERE TRUE ORDER BY label_id DESC ON CONFLICT DO NOTHING;
DROP TABLE calibration_rows;
ALTER TABLE calibration_rows_new RENAME TO calibration_rows;
CREATE INDEX calibration_rows_item ON calibration_rows (workspace_id, item);
CREATE INDEX calibration_rows_label ON calibration_rows (workspace_id, calibration_id, label_id);
CREATE INDEX calibration_rows_pending ON calibration_rows (workspace_id, calibration_id, label_id) WHERE pending;
CREATE INDEX calibration_rows_wrong ON calibration_rows (workspace_id, calibration_id, label_id) WHERE wrong;
CREATE INDEX calibration_rows_changed ON calibration_rows (workspace_id, calibration_id, label_id) WHERE changed;
CREATE INDEX calibration_rows_ruled ON calibration_rows (workspace_id, calibration_id, label_id) WHERE ruling <> '';
CREATE INDEX calibration_rows_draw ON calibration_rows (workspace_id, calibration_id, draw) WHERE judge = human;

-- +goose Down
SELECT 1;
