-- +goose Up

-- A logged exchange is found by the id that its caller was told. Ids sort by time, so that entries are added at the end of the index.
CREATE INDEX log_rows_request ON log_rows (workspace_id, request_id);

-- +goose Down
SELECT 1;
