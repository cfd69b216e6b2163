-- +goose Up

-- Hash chains over the audit trail and the ledger. A link is written with the rows of its subject, an audit entry or a
-- transfer: their number and their digest. It gets its place and its hash, which covers the hash before it, when it is
-- sealed. Rows from before this migration get their links at the next start.
CREATE TABLE chain_links (
    chain     TEXT   NOT NULL,
    subject   TEXT   NOT NULL,
    row_count BIGINT NOT NULL,
    digest    BYTEA  NOT NULL,
    seq       BIGINT,
    hash      BYTEA,
    PRIMARY KEY (chain, subject),
    CHECK ((seq IS NULL) = (hash IS NULL))
);
CREATE UNIQUE INDEX chain_links_seq ON chain_links (chain, seq) WHERE seq IS NOT NULL;
CREATE INDEX chain_links_unsealed ON chain_links (chain, subject) WHERE seq IS NULL;

-- The end of each chain: a JSON document with the number of links and the last hash, signed by the key in force.
CREATE TABLE chain_heads (
    chain    TEXT   PRIMARY KEY,
    seq      BIGINT NOT NULL,
    document BYTEA  NOT NULL,
    key_id   TEXT   NOT NULL,
    jws      TEXT   NOT NULL
);

-- +goose Down
SELECT 1;
