-- +goose Up

-- With several servers, each holds money only against its slices: parts of a wallet (hold_id is empty) or of a named hold
-- that the server has taken, by the id of its journal. Only that server changes its rows: when it takes or gives back, and
-- when it posts charges, which come out of the slice and out of the wallet at once. turn counts takings and givings back;
-- answered is the last recall that it has answered, taken how often it has taken, and held what its running requests held at
-- the last change.
-- On SQLite there are no rows.
CREATE TABLE wallet_slices (
    workspace_id TEXT   NOT NULL,
    hold_id      TEXT   NOT NULL,
    node         TEXT   NOT NULL,
    amount       BIGINT NOT NULL CHECK (amount >= 0),
    turn         BIGINT NOT NULL,
    answered     BIGINT NOT NULL,
    held         BIGINT NOT NULL,
    taken        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, hold_id, node)
);
CREATE INDEX wallet_slices_of ON wallet_slices (node);

-- A server that is short of a wallet or a named hold counts asked up: all give back what none of their requests holds.
CREATE TABLE wallet_recalls (
    workspace_id TEXT   NOT NULL,
    hold_id      TEXT   NOT NULL,
    asked        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, hold_id)
);

-- What the slices of a server were when an operator declared it lost: at most so much was spent there and never posted.
CREATE TABLE wallet_losses (
    workspace_id TEXT   NOT NULL,
    hold_id      TEXT   NOT NULL,
    node         TEXT   NOT NULL,
    amount       BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, hold_id, node)
);

-- +goose Down
SELECT 1;
