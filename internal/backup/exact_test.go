package backup_test

import (
	"bytes"
	"errors"
	"testing"

	"sovereign/internal/backup"
	"sovereign/internal/db"
	"sovereign/internal/db/dbtest"
)

func TestEmptyBytesAreNotNull(t *testing.T) {
	for _, from := range engines {
		source := migrated(t, from)
		fill(t, source)
		if _, err := db.Exec(t.Context(), source.Across("test"), `UPDATE vault_keys SET wrapped = $1`, []byte{}); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), source.Across("test"), `UPDATE audit_entries SET before_json = $1`, []byte{}); err != nil {
			t.Fatal(err)
		}
		file := write(t, source)
		for _, to := range engines {
			target := open(t, to)
			if _, _, err := backup.Restore(t.Context(), target, bytes.NewReader(file), accepted); err != nil {
				t.Errorf("%s to %s: %v", from, to, err)
				continue
			}
			n, err := db.One[int](t.Context(), target.Across("test"), `SELECT COUNT(*) FROM audit_entries WHERE before_json IS NULL`)
			if err != nil || n != 0 {
				t.Errorf("%s to %s: %d became NULL, %v", from, to, n, err)
			}
		}
	}
}

func TestAFileWithAChangedByteIsBroken(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		fill(t, source)
		want, file := everything(t, source), write(t, source)
		target := open(t, source.Engine)
		for i := 10; i < len(file); i += 11 {
			changed := bytes.Clone(file)
			changed[i] ^= 1 << (i * 5 % 8)
			_, _, err := backup.Restore(t.Context(), target, bytes.NewReader(changed), accepted)
			if err == nil { // other bits for the same content
				if have := everything(t, target); len(have) != len(want) {
					t.Error("other rows")
				}
				target = open(t, source.Engine)
			} else if !errors.Is(err, backup.ErrBroken) {
				t.Errorf("byte %d: %v", i, err)
			}
		}
	})
}

func TestTwoBackupsBehindEachOtherAreBroken(t *testing.T) {
	file := write(t, migrated(t, db.SQLite))
	if _, err := rowsOf(append(bytes.Clone(file), file...)); !errors.Is(err, backup.ErrBroken) {
		t.Errorf("got %v", err)
	}
}
