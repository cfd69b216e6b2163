// Package chain makes changes of the audit trail and the ledger evident. Each audit entry and each transfer has a link
// with the digest of its rows, written in the same transaction. A Sealer gives the links their places in a hash chain
// and signs the end of the chain, so that writers never wait for each other. Verify compares the rows, the chain and
// the signed head.
package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
)

// A Name names a chain.
type Name string

// The chains.
const (
	Audit  Name = "audit"
	Ledger Name = "ledger"
)

// Names lists the chains.
var Names = []Name{Audit, Ledger}

// covered lists the tables of each chain, with the column that names the subject of a row.
var covered = map[Name]map[string]string{
	Audit:  {"audit_entries": "id"},
	Ledger: {"ledger_entries": "transfer_id", "usage_rows": "transfer_id"},
}

// A Hash is a SHA-256.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// A Link holds what is known of a subject's rows: how many there are, and their digest.
type Link struct {
	Subject string
	Rows    int64
	Digest  Hash
}

// A Head is the end of a chain.
type Head struct {
	Object string     `json:"object" enum:"chain_head"`
	Chain  Name       `json:"chain" enum:"audit,ledger"`
	Seq    int64      `json:"seq" doc:"How many links the chain has"`
	Hash   string     `json:"hash" doc:"Of the last link, which covers all before it; zeros for an empty chain"`
	Since  clock.Time `json:"since" doc:"When the chain began"`
	At     clock.Time `json:"at" doc:"When this head was signed"`
}

// A Layout encodes the rows of a table for hashing. Every column is encoded with its name, its type and its value. The
// order of columns does not matter. NULL, 0, false and the empty text are left out, so that a column which a later
// migration adds with such a default leaves the hashes of earlier rows as they are.
type Layout struct {
	table   string
	columns []column // by name
}

type column struct {
	name  string
	place int // in a row
}

// NewLayout returns the layout of rows whose values are in the order of columns.
func NewLayout(table string, columns []string) Layout {
	l := Layout{table: table}
	for i, name := range columns {
		l.columns = append(l.columns, column{name, i})
	}
	slices.SortFunc(l.columns, func(a, b column) int { return strings.Compare(a.name, b.name) })
	return l
}

// Hash returns the hash of a row, whose values are int64, float64, string, []byte, bool or nil.
func (l Layout) Hash(row []any) (Hash, error) {
	var space [1 << 10]byte // on the stack: most rows fit
	text := appendText(space[:0], l.table)
	for _, c := range l.columns {
		switch v := row[c.place].(type) {
		case nil:
		case int64:
			if v != 0 {
				text = binary.BigEndian.AppendUint64(append(appendText(text, c.name), 'i'), uint64(v))
			}
		case string:
			if v != "" {
				text = appendText(append(appendText(text, c.name), 't'), v)
			}
		case bool:
			if v {
				text = append(appendText(text, c.name), 'b')
			}
		case []byte:
			if v != nil {
				text = appendText(append(appendText(text, c.name), 'x'), v)
			}
		case float64:
			if v != 0 {
				text = binary.BigEndian.AppendUint64(append(appendText(text, c.name), 'f'), math.Float64bits(v))
			}
		default:
			return Hash{}, fmt.Errorf("%s.%s is a %T, which has no encoding", l.table, c.name, v)
		}
	}
	return sha256.Sum256(text), nil
}

// appendText appends the length of v and v itself.
func appendText[T string | []byte](to []byte, v T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(v))), v...)
}

// NewLink returns the link of a subject. The digest covers the hashes of its rows in ascending order, whatever the
// order in which an engine returns rows. It reorders rows.
func NewLink(subject string, rows ...Hash) Link {
	slices.SortFunc(rows, func(a, b Hash) int { return bytes.Compare(a[:], b[:]) })
	all := sha256.New()
	for _, row := range rows {
		all.Write(row[:])
	}
	return Link{Subject: subject, Rows: int64(len(rows)), Digest: sum(all)}
}

// next returns the hash of the link at place seq, after the link with the hash before.
func next(before Hash, name Name, seq int64, l Link) Hash {
	text := appendText(nil, "sovereign chain 1")
	text = appendText(text, string(name))
	text = append(text, before[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(seq))
	text = appendText(text, l.Subject)
	text = binary.BigEndian.AppendUint64(text, uint64(l.Rows))
	text = append(text, l.Digest[:]...)
	return sha256.Sum256(text)
}

func sum(h hash.Hash) (out Hash) {
	h.Sum(out[:0])
	return out
}
