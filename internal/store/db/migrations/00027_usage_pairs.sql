-- +goose Up

-- The closed days by model with a filter of key and tag, and by key with one of model and tag: a year is then read in one
-- range. pick has both values, with a space between them. Days that are closed from now on get these rows like the others.
INSERT INTO usage_sums (
    workspace_id, cut, pick, day, grp, requests, errors, input, cached, output, cost, charged
) SELECT
    d.workspace_id, 'model/key+tag', d.key_id || ' ' || d.tag, d.day, d.model,
    d.requests, d.errors, d.input, d.cached, d.output, d.cost, d.charged
FROM usage_days d JOIN usage_closed c ON c.workspace_id = d.workspace_id WHERE d.day < c.before;
INSERT INTO usage_sums (
    workspace_id, cut, pick, day, grp, requests, errors, input, cached, output, cost, charged
) SELECT
    d.workspace_id, 'key/model+tag', d.model || ' ' || d.tag, d.day, d.key_id,
    d.requests, d.errors, d.input, d.cached, d.output, d.cost, d.charged
FROM usage_days d JOIN usage_closed c ON c.workspace_id = d.workspace_id WHERE d.day < c.before;

-- +goose Down
SELECT 1;
