-- +goose Up

-- The life of the node that has claimed a job: see nodes. A claim of an earlier release has none, and is one whose life
-- is over.
ALTER TABLE jobs ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;

-- How far the draws of each source were taken, as JSON by source: several nodes draw at once. What an earlier release took
-- is in source and seq.
ALTER TABLE canary_epochs ADD COLUMN cursors TEXT NOT NULL DEFAULT '{}';

-- +goose Down
SELECT 1;
