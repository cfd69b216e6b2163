-- +goose Up

-- The key of the digests of questions that requests of the epoch ask. Epochs that began without one end: they counted a
-- question as often as it was asked.
ALTER TABLE aliases ADD COLUMN gate_key TEXT NOT NULL DEFAULT '';

-- The questions that the drawn requests of an epoch have asked, as keyed digests, each with the position of the first.
CREATE TABLE canary_questions (
    workspace_id TEXT   NOT NULL,
    epoch_id     TEXT   NOT NULL,
    question     BYTEA  NOT NULL,
    position     BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, epoch_id, question)
);
CREATE INDEX canary_questions_position ON canary_questions (workspace_id, epoch_id, position);

-- What a workspace's samples of evals are drawn with, beside their seeds: a seed that was searched for elsewhere draws
-- another sample here.
CREATE TABLE eval_secrets (
    workspace_id TEXT  NOT NULL PRIMARY KEY,
    secret       BYTEA NOT NULL
);

-- +goose Down
SELECT 1;
