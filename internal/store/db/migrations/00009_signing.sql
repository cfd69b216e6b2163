-- +goose Up

-- Keys that sign documents such as certificates. The id is the thumbprint of the public key. The private part is sealed for
-- its id, and only the key in force has one: a key that is retired can verify and never sign again.
CREATE TABLE signing_keys (
    id         TEXT   PRIMARY KEY,
    public     BYTEA  NOT NULL,
    sealed     BYTEA,
    created_at BIGINT NOT NULL,
    retired_at BIGINT,
    CHECK ((sealed IS NULL) = (retired_at IS NOT NULL))
);
CREATE UNIQUE INDEX signing_keys_in_force ON signing_keys ((retired_at IS NULL)) WHERE retired_at IS NULL;

-- +goose Down
SELECT 1;
