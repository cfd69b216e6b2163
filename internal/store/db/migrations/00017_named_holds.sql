-- +goose Up

-- A named hold is money that is set aside from a wallet for a thing, such as a reward session, until the thing ends.
-- spent is what the usage rows that name it were charged, and grows in the transactions that insert them. ended_at is 0
-- while the hold is open. Rows are kept: usage rows name them.
CREATE TABLE named_holds (
    workspace_id TEXT   NOT NULL REFERENCES workspaces (workspace_id),
    id           TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    amount       BIGINT NOT NULL,
    spent        BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX named_holds_open ON named_holds (workspace_id) WHERE ended_at = 0;

-- The named hold that paid for a request, or empty; and what was used by the second.
ALTER TABLE usage_rows ADD COLUMN hold_id TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_rows ADD COLUMN gpu_seconds BIGINT NOT NULL DEFAULT 0;

-- +goose Down
SELECT 1;
