-- +goose Up

-- The counts of facets by the day too, under the name of the facet and @day: the most common values of a month are then
-- found among a thirtieth of the numbers. hour is the beginning of the day.
INSERT INTO log_counts (workspace_id, facet, value, hour, n)
SELECT workspace_id, facet || '@day', value, hour - hour % 86400000000, SUM(n)
FROM log_counts WHERE facet IN ('model', 'tag', 'segment', 'finish_reason', 'cached')
GROUP BY workspace_id, facet || '@day', value, hour - hour % 86400000000;

-- +goose Down
SELECT 1;
