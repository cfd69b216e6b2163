-- +goose Up

-- The gate of an alias: its settings, empty and 0 without one, and the epoch and the stratum that requests are drawn for.
ALTER TABLE aliases ADD COLUMN gate_criterion_id TEXT NOT NULL DEFAULT '';
ALTER TABLE aliases ADD COLUMN gate_mode TEXT NOT NULL DEFAULT '';
ALTER TABLE aliases ADD COLUMN gate_min_samples BIGINT NOT NULL DEFAULT 0;
ALTER TABLE aliases ADD COLUMN gate_rollback_threshold DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE aliases ADD COLUMN gate_window_hours BIGINT NOT NULL DEFAULT 0;
ALTER TABLE aliases ADD COLUMN gate_sample_percent DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE aliases ADD COLUMN gate_max_cost BIGINT NOT NULL DEFAULT 0;
ALTER TABLE aliases ADD COLUMN gate_epoch TEXT NOT NULL DEFAULT '';
ALTER TABLE aliases ADD COLUMN gate_stratum BIGINT NOT NULL DEFAULT 0;
CREATE INDEX aliases_gated ON aliases (workspace_id, name) WHERE gate_criterion_id <> '';

-- An epoch is the evidence about one pair of models by one version of a judge with one certificate. source and seq are the
-- last drawn request that was taken, taken counts them, and entered of them are in the tally. percents are the canary's
-- shares in the strata, as JSON.
CREATE TABLE canary_epochs (
    workspace_id      TEXT             NOT NULL,
    id                TEXT             NOT NULL,
    alias             TEXT             NOT NULL,
    target_model      TEXT             NOT NULL,
    canary_model      TEXT             NOT NULL,
    criterion_id      TEXT             NOT NULL,
    criterion_version BIGINT           NOT NULL,
    certificate_id    TEXT             NOT NULL,
    youden            DOUBLE PRECISION NOT NULL,
    false_pass        DOUBLE PRECISION NOT NULL,
    percents          TEXT             NOT NULL,
    source            TEXT             NOT NULL,
    seq               BIGINT           NOT NULL,
    taken             BIGINT           NOT NULL,
    entered           BIGINT           NOT NULL,
    tally             TEXT             NOT NULL,
    spent             BIGINT           NOT NULL,
    verdict           TEXT             NOT NULL,
    automatic         BOOLEAN          NOT NULL,
    shown             TEXT             NOT NULL,
    started_at        BIGINT           NOT NULL,
    evaluated_at      BIGINT           NOT NULL,
    decided_at        BIGINT           NOT NULL,
    acted_at          BIGINT           NOT NULL,
    ended_at          BIGINT           NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX canary_epochs_alias ON canary_epochs (workspace_id, alias, started_at);

-- A request that was drawn, at its position in the order of drawing. Its result is empty until a judge has answered.
CREATE TABLE canary_samples (
    workspace_id TEXT    NOT NULL,
    epoch_id     TEXT    NOT NULL,
    position     BIGINT  NOT NULL,
    request_id   TEXT    NOT NULL,
    stratum      BIGINT  NOT NULL,
    canary       BOOLEAN NOT NULL,
    result       TEXT    NOT NULL,
    tries        BIGINT  NOT NULL,
    latency      BIGINT  NOT NULL,
    cost         BIGINT  NOT NULL,
    drawn_at     BIGINT  NOT NULL,
    expires_at   BIGINT  NOT NULL,
    PRIMARY KEY (workspace_id, epoch_id, position)
);
CREATE INDEX canary_samples_pending ON canary_samples (workspace_id, epoch_id, position) WHERE result = '';
CREATE INDEX canary_samples_expiry ON canary_samples (expires_at);

-- The evidence of an epoch over time.
CREATE TABLE canary_points (
    workspace_id TEXT             NOT NULL,
    epoch_id     TEXT             NOT NULL,
    position     BIGINT           NOT NULL,
    at           BIGINT           NOT NULL,
    promote      DOUBLE PRECISION NOT NULL,
    roll_back    DOUBLE PRECISION NOT NULL,
    difference   DOUBLE PRECISION,
    lowest       DOUBLE PRECISION NOT NULL,
    highest      DOUBLE PRECISION NOT NULL,
    base_n       BIGINT           NOT NULL,
    base_passes  BIGINT           NOT NULL,
    canary_n     BIGINT           NOT NULL,
    canary_passes BIGINT          NOT NULL,
    PRIMARY KEY (workspace_id, epoch_id, position)
);

-- +goose Down
SELECT 1;
