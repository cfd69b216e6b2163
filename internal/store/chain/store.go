package chain

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/store/db"
)

// scope is why links and heads are read across workspaces.
const scope = "a chain is the server's"

// Add writes links in the transaction that writes their rows.
func Add(ctx context.Context, tx *db.Tx, name Name, links ...Link) error {
	return insert(ctx, tx.Across(scope), name, links)
}

func insert(ctx context.Context, s db.Scoped, name Name, links []Link) error {
	rows := make([][]any, len(links))
	for i, l := range links {
		rows[i] = []any{string(name), l.Subject, l.Rows, l.Digest[:]}
	}
	if err := db.Insert(ctx, s, "chain_links", []string{"chain", "subject", "row_count", "digest"}, rows); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	return nil
}

// A storedLink is a link with its place in the chain, when it has one.
type storedLink struct {
	Subject  string
	RowCount int64
	Digest   []byte
	Seq      *int64
	Hash     []byte
}

func (l storedLink) link() Link {
	out := Link{Subject: l.Subject, Rows: l.RowCount}
	if len(l.Digest) == len(out.Digest) { // another length is a change, and matches nothing
		copy(out.Digest[:], l.Digest)
	}
	return out
}

// readLinks reads all links of a chain, in order, those without a place last.
func readLinks(ctx context.Context, s db.Scoped, name Name) ([]storedLink, error) {
	links, err := db.Query[storedLink](ctx, s, `
		SELECT subject, row_count, digest, seq, hash FROM chain_links WHERE chain = $1
		ORDER BY CASE WHEN seq IS NULL THEN 1 ELSE 0 END, seq, subject`, name)
	if err != nil {
		return nil, fmt.Errorf("read the links of %s: %w", name, err)
	}
	return links, nil
}

// readUnsealed reads links that have no place yet.
func readUnsealed(ctx context.Context, s db.Scoped, name Name, limit int) ([]storedLink, error) {
	links, err := db.Query[storedLink](ctx, s, `
		SELECT subject, row_count, digest, seq, hash FROM chain_links WHERE chain = $1 AND seq IS NULL
		ORDER BY subject LIMIT $2`, name, limit)
	if err != nil {
		return nil, fmt.Errorf("read the unsealed links of %s: %w", name, err)
	}
	return links, nil
}

// countRows returns how many rows each subject has.
func countRows(ctx context.Context, s db.Scoped, name Name) (all []storedLink, err error) {
	sums := map[string]int64{}
	for table, key := range covered[name] {
		counts, err := db.Query[storedLink](ctx, s,
			"SELECT "+key+" AS subject, COUNT(*) AS row_count FROM "+table+" GROUP BY "+key)
		if err != nil {
			return nil, fmt.Errorf("count %s: %w", table, err)
		}
		for _, c := range counts {
			sums[c.Subject] += c.RowCount
		}
	}
	for subject, n := range sums {
		all = append(all, storedLink{Subject: subject, RowCount: n})
	}
	return all, nil
}

// place gives links the places after seq, and their hashes.
func place(ctx context.Context, s db.Scoped, name Name, seq int64, links []Link, hashes []Hash) error {
	rows := make([][]any, len(links))
	for i, l := range links {
		rows[i] = []any{string(name), l.Subject, l.Rows, l.Digest[:], seq + int64(i) + 1, hashes[i][:]}
	}
	columns := []string{"chain", "subject", "row_count", "digest", "seq", "hash"}
	return db.Merge(ctx, s, "chain_links", columns, 2, "seq = excluded.seq, hash = excluded.hash", rows)
}

// A SignedHead is a head as it was signed.
type SignedHead struct {
	Head

	document   []byte
	KeyID, JWS string
}

type headRow struct {
	Seq        int64
	Document   []byte
	KeyID, JWS string
}

// readHead reads the head of a chain, or nil when the chain has not begun.
func readHead(ctx context.Context, s db.Scoped, name Name) (*SignedHead, error) {
	row, err := db.Maybe[headRow](ctx, s, `SELECT seq, document, key_id, jws FROM chain_heads WHERE chain = $1`, name)
	if err != nil || row == nil {
		return nil, err
	}
	h := &SignedHead{document: row.Document, KeyID: row.KeyID, JWS: row.JWS}
	if err := json.Unmarshal(row.Document, &h.Head); err != nil || h.Chain != name || h.Seq != row.Seq {
		return nil, fmt.Errorf("%w: its document is not one", ErrHead)
	}
	return h, nil
}

// writeHead puts a head in the place of the one before.
func writeHead(ctx context.Context, s db.Scoped, h SignedHead) error {
	_, err := db.Exec(ctx, s, `
		INSERT INTO chain_heads (chain, seq, document, key_id, jws) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (chain) DO UPDATE SET seq = excluded.seq, document = excluded.document, key_id = excluded.key_id,
			jws = excluded.jws`, h.Chain, h.Seq, h.document, h.KeyID, h.JWS)
	if err != nil {
		return fmt.Errorf("write the head of %s: %w", h.Chain, err)
	}
	return nil
}
