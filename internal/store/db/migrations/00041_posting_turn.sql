-- +goose Up

-- A lock, and nothing else: servers that post charges to the same wallets lock this table one after the other. A
-- transaction that waits for a row would have to start anew, since it sees the ledger as it was before it waited. A
-- transaction that waits for a table, before it reads anything, sees what the one before has committed.
CREATE TABLE posting_turn (id BIGINT PRIMARY KEY);

-- +goose Down
SELECT 1;
