-- +goose Up

-- The node whose journal may have the charge that is being made: no other makes it, until that node says that its journal
-- does not have it, or is forgotten. Empty for none.
ALTER TABLE training_attempts ADD COLUMN charge_node TEXT NOT NULL DEFAULT '';
ALTER TABLE endpoint_replicas ADD COLUMN due_node TEXT NOT NULL DEFAULT '';

-- The engines that requests of a group are sent to, as the node that leads the engines says, where several nodes share the
-- database. replicas is JSON. machine is where addresses of the loopback are good. failure is why requests are refused, or
-- empty; retry_in is when they may come again, in microseconds. revision counts the changes.
CREATE TABLE engine_groups (
    name     TEXT   NOT NULL PRIMARY KEY,
    machine  TEXT   NOT NULL,
    replicas TEXT   NOT NULL,
    failure  TEXT   NOT NULL,
    retry_in BIGINT NOT NULL,
    revision BIGINT NOT NULL
);

-- How the requests of a node use a group. revision is that of the group which the node has in force. busy is JSON: the
-- requests that are being answered, by replica.
CREATE TABLE engine_uses (
    name        TEXT   NOT NULL,
    node        TEXT   NOT NULL,
    epoch       BIGINT NOT NULL,
    revision    BIGINT NOT NULL,
    outstanding BIGINT NOT NULL,
    waiting     BIGINT NOT NULL,
    last_used   BIGINT NOT NULL,
    busy        TEXT   NOT NULL,
    PRIMARY KEY (name, node)
);

-- A node uses a model version that an engine has loaded beside its base model. recall asks the node to let go of it as soon
-- as it answers nothing with it.
CREATE TABLE engine_adapters (
    replica TEXT    NOT NULL,
    version TEXT    NOT NULL,
    node    TEXT    NOT NULL,
    epoch   BIGINT  NOT NULL,
    recall  BOOLEAN NOT NULL,
    PRIMARY KEY (replica, version, node)
);

-- The node that loads and unloads versions of an engine now. No other does meanwhile.
CREATE TABLE engine_loading (
    replica TEXT   NOT NULL PRIMARY KEY,
    node    TEXT   NOT NULL,
    epoch   BIGINT NOT NULL
);

-- Where a node keeps the files of training: the id of a folder, or the name of a bucket. It is to be the same at all nodes.
CREATE TABLE node_files (
    node  TEXT NOT NULL PRIMARY KEY,
    store TEXT NOT NULL
);

-- +goose Down
SELECT 1;
