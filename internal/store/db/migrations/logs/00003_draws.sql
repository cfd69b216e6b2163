-- +goose Up

-- The requests that the gates of aliases have drawn, whatever became of them, without their text. A row holds those of
-- one split and source that were ingested together and whose numbers have the same page, as the spool had them: a row
-- for each would cost more than 3 % of a logged request. They are no log rows: nothing that lists, counts or exports
-- logs reads them.
CREATE TABLE canary_draws (
    workspace_id TEXT   NOT NULL,
    alias        TEXT   NOT NULL,
    epoch        TEXT   NOT NULL,
    source       TEXT   NOT NULL,
    first_seq    BIGINT NOT NULL,
    last_seq     BIGINT NOT NULL,
    n            BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    draws        BYTEA  NOT NULL,
    PRIMARY KEY (workspace_id, alias, epoch, source, first_seq)
);
CREATE INDEX canary_draws_expiry ON canary_draws (expires_at);

-- +goose Down
SELECT 1;
