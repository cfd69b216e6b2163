-- +goose Up

-- The rows of usage, under one key where there were a key, two indexes and a reference: putting a row in is work of every
-- request's road, and each of them is paid for by each row. The key is the order in which rows are listed.
--
-- Exactly once does not rest on the key: a batch is committed together with the journal's position. The key is a net
-- under that: a charge that was posted twice all the same has the same workspace, time and id, and is refused.
--
-- Nothing refers to a workspace that is not there: workspaces are never deleted, and the proof of the ledger finds a row
-- that does not belong to a transfer of its workspace.
CREATE TABLE usage_kept (
    workspace_id TEXT    NOT NULL,
    at           BIGINT  NOT NULL,
    request_id   TEXT    NOT NULL,
    transfer_id  TEXT    NOT NULL,
    key_id       TEXT    NOT NULL,
    route        TEXT    NOT NULL,
    model        TEXT    NOT NULL,
    requested    TEXT    NOT NULL,
    alias        TEXT    NOT NULL,
    provider     TEXT    NOT NULL,
    outcome      TEXT    NOT NULL,
    counted      BOOLEAN NOT NULL,
    own_key      BOOLEAN NOT NULL,
    input        BIGINT  NOT NULL,
    cached       BIGINT  NOT NULL,
    written      BIGINT  NOT NULL,
    audio_input  BIGINT  NOT NULL,
    output       BIGINT  NOT NULL,
    reasoning    BIGINT  NOT NULL,
    audio_output BIGINT  NOT NULL,
    searches     BIGINT  NOT NULL,
    price        TEXT    NOT NULL,
    cost         BIGINT  NOT NULL,
    charged      BIGINT  NOT NULL,
    CONSTRAINT usage_rows_key PRIMARY KEY (workspace_id, at, request_id)
);
INSERT INTO usage_kept (
    workspace_id, at, request_id, transfer_id, key_id, route, model, requested, alias, provider, outcome, counted, own_key,
    input, cached, written, audio_input, output, reasoning, audio_output, searches, price, cost, charged
) SELECT
    workspace_id, at, request_id, transfer_id, key_id, route, model, requested, alias, provider, outcome, counted, own_key,
    input, cached, written, audio_input, output, reasoning, audio_output, searches, price, cost, charged
FROM usage_rows ORDER BY workspace_id, at, request_id;
DROP TABLE usage_rows;
ALTER TABLE usage_kept RENAME TO usage_rows;

-- +goose Down
SELECT 1;
