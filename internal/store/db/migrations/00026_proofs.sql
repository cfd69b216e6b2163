-- +goose Up

-- Who made a link. A link that was made in a workspace falls with the role of its maker; it is empty for the operator's.
ALTER TABLE signin_links ADD COLUMN made_by TEXT NOT NULL DEFAULT '';
UPDATE signin_links SET made_by = COALESCE((SELECT i.created_by FROM invitations i WHERE i.link_id = signin_links.id), '');

-- A grant opens its queue once the person has opened its link: nobody else proves that an address is theirs. It is 0
-- until then.
ALTER TABLE review_grants ADD COLUMN accepted_at BIGINT NOT NULL DEFAULT 0;
UPDATE review_grants SET accepted_at = created_at;

-- What a reversal is: the refunds of a charge summed up, one refund, a refund that failed, or a dispute.
ALTER TABLE payment_reversals ADD COLUMN kind TEXT NOT NULL DEFAULT 'dispute';
UPDATE payment_reversals SET kind = 'charge' WHERE substr(source, 1, 3) IN ('ch_', 'py_');

-- +goose Down
SELECT 1;
