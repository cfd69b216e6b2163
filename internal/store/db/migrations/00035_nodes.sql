-- +goose Up

-- A server on a PostgreSQL database, by the id of its journal. epoch counts its lives: each join begins one, and ended says
-- that the last is over. beat grows with every renewal of the lease. applied is the version of change that it has in force;
-- serving says that it accepts requests, so that changes must wait for it. draining says that it shall stop. forgotten says
-- that its disk is gone. The rest is what operators see.
CREATE TABLE nodes (
    id         TEXT    NOT NULL PRIMARY KEY,
    epoch      BIGINT  NOT NULL,
    beat       BIGINT  NOT NULL,
    applied    BIGINT  NOT NULL,
    serving    BOOLEAN NOT NULL,
    draining   BOOLEAN NOT NULL,
    ended      BOOLEAN NOT NULL,
    forgotten  BOOLEAN NOT NULL,
    name       TEXT    NOT NULL,
    address    TEXT    NOT NULL,
    release    TEXT    NOT NULL,
    settings   TEXT    NOT NULL,
    joined_at  BIGINT  NOT NULL,
    seen_at    BIGINT  NOT NULL
);

-- Work that one node does for all, by the life that does it.
CREATE TABLE node_roles (
    role  TEXT   NOT NULL PRIMARY KEY,
    node  TEXT   NOT NULL,
    epoch BIGINT NOT NULL
);

-- +goose Down
SELECT 1;
