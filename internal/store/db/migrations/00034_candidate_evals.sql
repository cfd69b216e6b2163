-- +goose Up

-- Why a candidate waits for its eval, or why its gate refused it; and when it is next looked at.
ALTER TABLE grpo_candidates ADD COLUMN gate_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE grpo_candidates ADD COLUMN due_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX grpo_candidates_due ON grpo_candidates (due_at) WHERE gate = '';

-- +goose Down
SELECT 1;
