-- +goose Up

-- Who made a link. A link that was made in a workspace falls with the role of its maker; it is empty for the operator's.
ALTER TABLE signin_links ADD COLUMN made_by TEXT NOT NULL DEFAULT '';
UPDATE signin_links SET made_by = COALESCE((SELECT i.created_by FROM invitations i WHERE i.link_id = signin_links.id), '');

-- +goose Down
SELECT 1;
