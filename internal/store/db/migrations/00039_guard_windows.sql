-- +goose Up

-- A fixed window of starts that all servers on this database count together: of the abuse guard, and of signing in. kind
-- says what is counted, and name for whom. ends_at is by the database's clock. On SQLite the one server counts in memory.
CREATE TABLE guard_windows (
    kind    TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    ends_at BIGINT NOT NULL,
    used    BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- +goose Down
SELECT 1;
