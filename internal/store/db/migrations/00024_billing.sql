-- +goose Up

-- Payments that people begin on the dashboard. The row stands before the payment provider hears of it: its id is the
-- provider's idempotency key, and what a paid session must name. taken is what refunds and disputes took back.
CREATE TABLE topups (
    workspace_id   TEXT   NOT NULL,
    id             TEXT   NOT NULL,
    amount         BIGINT NOT NULL,
    currency       TEXT   NOT NULL,
    state          TEXT   NOT NULL,
    session_id     TEXT   NOT NULL,
    url            TEXT   NOT NULL,
    payment_intent TEXT   NOT NULL,
    transfer_id    TEXT   NOT NULL,
    taken          BIGINT NOT NULL,
    failure        TEXT   NOT NULL,
    created_by     TEXT   NOT NULL,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL,
    paid_at        BIGINT,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX topups_id ON topups (id);
CREATE INDEX topups_intent ON topups (payment_intent) WHERE payment_intent <> '';
CREATE INDEX topups_open ON topups (created_at) WHERE state = 'pending';

-- What was refunded or disputed of a payment, by the refunded charge or the dispute. It may be told before the payment
-- itself is, so it names no workspace: workspace_id is that of the server.
CREATE TABLE payment_reversals (
    workspace_id   TEXT    NOT NULL,
    payment_intent TEXT    NOT NULL,
    source         TEXT    NOT NULL,
    amount         BIGINT  NOT NULL,
    final          BOOLEAN NOT NULL,
    updated_at     BIGINT  NOT NULL,
    PRIMARY KEY (workspace_id, payment_intent, source)
);
CREATE INDEX payment_reversals_updated ON payment_reversals (updated_at);

-- What was taken back of a payment and the wallet could not give. The next credit pays it.
CREATE TABLE wallet_debts (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    amount       BIGINT NOT NULL,
    paid         BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX wallet_debts_open ON wallet_debts (workspace_id) WHERE paid < amount;

-- The ledger's entries, summed up by UTC day (days since 1970): what statements are made of.
CREATE TABLE ledger_days (
    workspace_id TEXT   NOT NULL,
    day          BIGINT NOT NULL,
    kind         TEXT   NOT NULL,
    account      TEXT   NOT NULL,
    amount       BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, day, kind, account)
);
INSERT INTO ledger_days (workspace_id, day, kind, account, amount)
SELECT workspace_id, at / 86400000000, kind, account, CAST(SUM(amount) AS BIGINT) FROM ledger_entries
GROUP BY workspace_id, at / 86400000000, kind, account;

-- What people are told of, written in the transaction of its cause. queued_at is when its deliveries were made.
CREATE TABLE notices (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    subject      TEXT   NOT NULL,
    title        TEXT   NOT NULL,
    body         TEXT   NOT NULL,
    link         TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    queued_at    BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX notices_waiting ON notices (at) WHERE queued_at = 0;
CREATE INDEX notices_at ON notices (at);

-- States that are told of once: a wallet that is low, a budget that is reached in a period.
CREATE TABLE notice_marks (
    workspace_id TEXT   NOT NULL,
    mark         TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, mark)
);
CREATE INDEX notice_marks_at ON notice_marks (at);

-- A workspace without a row has set nothing.
CREATE TABLE notice_settings (
    workspace_id TEXT   NOT NULL PRIMARY KEY,
    wallet_low   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL
);

CREATE TABLE notice_channels (
    workspace_id    TEXT    NOT NULL,
    id              TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    address         TEXT    NOT NULL,
    sealed          BYTEA,
    kinds           TEXT    NOT NULL,
    enabled         BOOLEAN NOT NULL,
    failing_since   BIGINT  NOT NULL,
    disabled_reason TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    updated_at      BIGINT  NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

CREATE TABLE notice_deliveries (
    workspace_id TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    channel_id   TEXT   NOT NULL,
    notice_id    TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    state        TEXT   NOT NULL,
    attempts     BIGINT NOT NULL,
    first_at     BIGINT NOT NULL,
    next_at      BIGINT NOT NULL,
    failure      TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX notice_deliveries_once ON notice_deliveries (workspace_id, channel_id, notice_id);
CREATE INDEX notice_deliveries_due ON notice_deliveries (next_at) WHERE state = 'pending';
CREATE INDEX notice_deliveries_created ON notice_deliveries (created_at);

-- +goose Down
SELECT 1;
