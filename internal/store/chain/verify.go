package chain

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sovereign/internal/store/db"
)

// A Proof is the result of comparing a chain with the rows that it covers and with its signed head.
type Proof struct {
	OK       bool     `json:"ok"`
	Entries  int64    `json:"entries" doc:"How many entries the chain has"`
	Unsealed int64    `json:"unsealed" doc:"How many entries were written while it was verified, and are in no signed head yet"`
	Head     *Head    `json:"head" doc:"The signed head; null for a chain that has not begun"`
	Problems []string `json:"problems" nullable:"false" doc:"What was changed, removed or added, in words; the first hundred"`
}

// Kept names a head that was kept elsewhere, as a query.
type Kept struct {
	Head string `query:"head" pattern:"^([0-9a-f]{64})?$" doc:"The hash of an earlier head: fails unless it is in the chain"`
}

// maxProblems bounds the problems that are listed: one of a thousand is enough to fail.
const maxProblems = 100

func (p *Proof) found(format string, args ...any) {
	if len(p.Problems) < maxProblems {
		p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
	}
}

// Verify compares a chain with all rows that it covers, and with the head that keys has signed. Every row must have
// its link, every link its place and its rows, and the head must be the end of the chain. kept is the hash of an
// earlier head, or empty: it must be in the chain. s must not change meanwhile.
func Verify(ctx context.Context, s db.Scoped, keys Keys, name Name, kept string) (Proof, error) {
	p := Proof{Problems: []string{}}
	links, err := readLinks(ctx, s, name)
	if err != nil {
		return p, err
	}
	end, err := p.checkHead(ctx, s, keys, name)
	if err != nil {
		return p, err
	}
	if err := p.checkRows(ctx, s, name, links); err != nil {
		return p, err
	}
	p.checkLinks(name, links, end, kept)
	p.OK = len(p.Problems) == 0
	return p, nil
}

// checkRows compares the rows with their links. Rows without a link are a problem once the chain has begun.
func (p *Proof) checkRows(ctx context.Context, s db.Scoped, name Name, links []storedLink) error {
	begun := p.Head != nil || len(p.Problems) > 0 // it has a head, genuine or not
	found, err := digests(ctx, s, name, links)
	if err != nil {
		return err
	}
	for _, l := range links {
		switch rows := found[l.Subject]; {
		case rows == nil:
			p.found("%s was removed", l.Subject)
		case rows.link(l.Subject) != l.link():
			p.found("%s was changed", l.Subject)
		}
		delete(found, l.Subject)
	}
	if begun {
		for _, subject := range slices.Sorted(maps.Keys(found)) {
			p.found("%s is not in the chain", subject)
		}
	}
	return nil
}

// checkHead reads the signed head, and returns the hash that the last link must have.
func (p *Proof) checkHead(ctx context.Context, s db.Scoped, keys Keys, name Name) (end Hash, err error) {
	h, err := readHead(ctx, s, name)
	if err == nil && h != nil {
		p.Head = &h.Head
		end, err = h.verify(ctx, s, keys)
	}
	if errors.Is(err, ErrHead) {
		p.found("%v", err)
		err = nil
	}
	return end, err
}

// checkLinks recomputes the chain.
func (p *Proof) checkLinks(name Name, links []storedLink, end Hash, kept string) {
	var last Hash
	keptFound := kept == "" || kept == last.String()
	for _, l := range links {
		if l.Seq == nil {
			p.Unsealed++
			continue
		}
		p.Entries++
		if *l.Seq != p.Entries {
			p.found("link %d of the chain is missing", p.Entries)
			p.Entries = *l.Seq
		}
		if hash := next(last, name, *l.Seq, l.link()); hash.String() != hex.EncodeToString(l.Hash) {
			p.found("link %d of the chain, of %s, was changed, or one before it", *l.Seq, l.Subject)
		}
		copy(last[:], l.Hash)
		keptFound = keptFound || last.String() == kept
	}
	switch {
	case p.Head == nil && p.Entries > 0:
		p.found("%v: it is missing", ErrHead)
	case p.Head != nil && (p.Entries != p.Head.Seq || last != end):
		p.found("the chain ends with link %d and %s, and its signed head with link %d and %s", p.Entries, last, p.Head.Seq,
			p.Head.Hash)
	}
	if !keptFound {
		p.found("the head that was kept, %s, is not in the chain: what it covers was changed or removed", kept)
	}
}

// verify checks the signature of a head, and returns the hash that it names.
func (h *SignedHead) verify(ctx context.Context, s db.Scoped, keys Keys) (last Hash, err error) {
	if err := keys.VerifyHead(ctx, s, h.document, h.KeyID, h.JWS); err != nil {
		return last, err
	}
	raw, err := hex.DecodeString(h.Hash)
	if err != nil || len(raw) != len(last) {
		return last, fmt.Errorf("%w: %q is not a hash", ErrHead, h.Hash)
	}
	copy(last[:], raw)
	return last, nil
}

// subjectRows is what was read of a subject: hashes of rows, or the link that they make.
type subjectRows struct {
	expected int64
	hashes   []Hash
	complete *Link
}

// add adds a row. When there are as many as expected, only their digest is kept: usage has many rows.
func (r *subjectRows) add(row Hash) {
	if r.complete != nil { // one more than expected
		r.hashes = append(r.hashes, row)
		return
	}
	if r.hashes = append(r.hashes, row); int64(len(r.hashes)) == r.expected {
		l := NewLink("", r.hashes...)
		r.complete, r.hashes = &l, nil
	}
}

func (r *subjectRows) link(subject string) Link {
	if r.complete != nil {
		return Link{Subject: subject, Rows: r.complete.Rows + int64(len(r.hashes)), Digest: r.complete.Digest}
	}
	return NewLink(subject, r.hashes...)
}

// digests reads all rows that a chain covers, by their subjects.
func digests(ctx context.Context, s db.Scoped, name Name, links []storedLink) (map[string]*subjectRows, error) {
	expected := make(map[string]int64, len(links))
	for _, l := range links {
		expected[l.Subject] = l.RowCount
	}
	tables, err := db.Tables(ctx, s)
	if err != nil {
		return nil, err
	}
	all := make(map[string]*subjectRows, len(links))
	for _, t := range tables {
		key, covers := covered[name][t.Name]
		if !covers {
			continue
		}
		columns := make([]string, len(t.Columns))
		for i, c := range t.Columns {
			columns[i] = c.Name
		}
		layout, subject := NewLayout(t.Name, columns), slices.Index(columns, key)
		for row, err := range db.Dump(ctx, s, t) {
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", t.Name, err)
			}
			hash, err := layout.Hash(row)
			if err != nil {
				return nil, err
			}
			of, _ := row[subject].(string)
			if all[of] == nil {
				all[of] = &subjectRows{expected: expected[of]}
			}
			all[of].add(hash)
		}
	}
	return all, nil
}
