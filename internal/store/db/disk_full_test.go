package db

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
)

// A full disk, as SQLite reports it: the transaction is refused as a whole, reading works, and writing works again
// when there is space.
func TestAFullDiskRefusesWholeTransactionsAndRecovers(t *testing.T) {
	d, err := Open(t.Context(), t.TempDir(), secret.Text{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	bound := func(pages string) {
		if _, err := d.write.ExecContext(t.Context(), "PRAGMA max_page_count = "+pages); err != nil {
			t.Fatal(err)
		}
	}
	all := d.Across("test")
	pages, err := One[int](t.Context(), all, `PRAGMA page_count`)
	if err != nil {
		t.Fatal(err)
	}
	bound(strconv.Itoa(pages + 4))
	add := func(i int) error {
		_, err := d.Tx(t.Context(), func(tx *Tx) error {
			for j := range 3 { // several statements, so that the failing one has others before it
				name := fmt.Sprintf("%d/%d %s", i, j, strings.Repeat("x", 2000))
				if _, err := Exec(t.Context(), tx.Across("test"), `INSERT INTO users (id, email, created_at) VALUES ($1, $1, 1)`, name); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
	added := 0
	for err == nil && added < 100 {
		if err = add(added); err == nil {
			added++
		}
	}
	var f *fault.Fault
	if !errors.As(err, &f) || f.Kind != fault.Unavailable {
		t.Fatalf("after %d changes: %v", added, err)
	}
	count := func() int {
		n, err := One[int](t.Context(), all, `SELECT COUNT(*) FROM users`)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := count(); got != 3*added {
		t.Errorf("%d rows after %d whole changes", got, added)
	}
	bound("100000")
	if err := add(1000); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if got := count(); got != 3*(added+1) {
		t.Errorf("%d rows", got)
	}
}
