package backup_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/store/backup"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

func newRoot(t testing.TB) *vault.Root {
	t.Helper()
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func encrypted(t testing.TB, plain []byte, key backup.Key) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := backup.Encrypt(&out, key)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decrypted(file []byte, key backup.Key) ([]byte, error) {
	r, err := backup.Decrypt(bytes.NewReader(file), key)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

const segment = 1 << 20

// noise is n bytes that do not compress.
func noise(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(out)
	return out
}

func TestAnEncryptedBackupOpensWithItsKeyAlone(t *testing.T) {
	root, other := newRoot(t), newRoot(t)
	passphrase := backup.Key{Root: root, Passphrase: []byte("correct horse battery")}
	for _, size := range []int{0, 1, segment - 100, segment, 3*segment + 5} {
		plain := noise(size)
		for name, key := range map[string]backup.Key{"root": {Root: root}, "passphrase": passphrase} {
			file := encrypted(t, plain, key)
			if got, err := decrypted(file, key); err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			if size > 32 && bytes.Contains(file, plain[:32]) {
				t.Errorf("%s, %d bytes: it is readable", name, size)
			}
			if again := encrypted(t, plain, key); bytes.Equal(again, file) {
				t.Error("two files are the same")
			}
		}
	}
	byRoot, byPassphrase := encrypted(t, []byte("x"), backup.Key{Root: root}), encrypted(t, []byte("x"), passphrase)
	for _, c := range []struct {
		file []byte
		key  backup.Key
		want error
	}{
		{byRoot, backup.Key{Root: other}, backup.ErrKey},
		{byRoot, backup.Key{Passphrase: []byte("correct horse battery")}, backup.ErrKey},
		{byPassphrase, backup.Key{Root: root}, backup.ErrKey},
		{byPassphrase, backup.Key{Passphrase: []byte("correct horse batterie")}, backup.ErrBroken},
		{nil, passphrase, backup.ErrBroken},
		{[]byte("something else altogether, and long enough to be one"), passphrase, backup.ErrBroken},
	} {
		if got, err := decrypted(c.file, c.key); !errors.Is(err, c.want) {
			t.Errorf("want %v, got %q %v", c.want, got, err)
		}
	}
}

// Any single changed, removed, repeated or moved byte, segment or end is found, and nothing but what was encrypted is
// ever given out.
func TestAnyChangeOfAnEncryptedBackupIsFound(t *testing.T) {
	key := backup.Key{Root: newRoot(t)}
	plain := noise(3*segment + 1000)
	file := encrypted(t, plain, key)
	check := func(t *rapid.T, what string, changed []byte) {
		t.Helper()
		if bytes.Equal(changed, file) {
			return
		}
		got, err := decrypted(changed, key)
		if !errors.Is(err, backup.ErrBroken) && !errors.Is(err, backup.ErrKey) && !errors.Is(err, backup.ErrPlain) {
			t.Fatalf("%s: %v", what, err)
		}
		if !bytes.HasPrefix(plain, got) {
			t.Fatalf("%s: it reads something else", what)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, len(file)-1)).Draw(t, "at")
		flipped := bytes.Clone(file)
		flipped[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		check(t, "a bit", flipped)
		check(t, "cut", file[:at])
		check(t, "a byte less", append(bytes.Clone(file[:at]), file[at+1:]...))
		check(t, "a byte more", append(append(bytes.Clone(file[:at]), 0), file[at:]...))
		check(t, "appended", append(bytes.Clone(file), file[at:]...))
	})
	start := len(file) - len(plain) - 4*16 // after the beginning
	begin, rest := file[:start], file[start:]
	first := segment - (len(file) - len(plain) - 4*16) // segments are as long, but for the first; any cut there will do
	for _, cut := range []int{first, segment, 2 * segment, 3 * segment, len(rest) - 100} {
		moved := append(append(bytes.Clone(begin), rest[cut:]...), rest[:cut]...)
		if _, err := decrypted(moved, key); !errors.Is(err, backup.ErrBroken) {
			t.Errorf("the parts at %d are moved: %v", cut, err)
		}
		if _, err := decrypted(file[:start+cut], key); !errors.Is(err, backup.ErrBroken) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func TestAPlainBackupIsToldApart(t *testing.T) {
	plain := write(t, dbtest.Migrated(t, db.SQLite))
	r, err := backup.Decrypt(bytes.NewReader(plain), backup.Key{Root: newRoot(t)})
	if !errors.Is(err, backup.ErrPlain) {
		t.Fatal(err)
	}
	if _, err := backup.NewReader(r); err != nil {
		t.Error(err)
	}
}

// A restore of an encrypted file is all or nothing too.
func TestNothingIsStoredOfAnEncryptedFileThatWasChanged(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, source *db.DB) {
		fill(t, source)
		key := backup.Key{Root: newRoot(t)}
		want, plain := everything(t, source), write(t, source)
		file := encrypted(t, plain, key)
		target := open(t, source.Engine)
		for i := range 12 {
			at := len(file) * i / 12
			for _, changed := range [][]byte{file[:at], append(append(bytes.Clone(file[:at]), file[at]^1), file[at+1:]...)} {
				r, err := backup.Decrypt(bytes.NewReader(changed), key)
				if err == nil {
					_, _, err = restore(t.Context(), target, r, accepted)
				}
				if err == nil {
					t.Fatalf("byte %d of %d changed, and it is restored", at, len(file))
				}
			}
		}
		stillEmpty(t, target, plain, want)
	})
}

func FuzzDecryptingArbitraryBytesNeverPanics(f *testing.F) {
	root := newRoot(f)
	f.Add(encrypted(f, []byte("rows"), backup.Key{Root: root}))
	f.Add([]byte("sovereign encrypted backup 1\n\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if got, err := decrypted(file, backup.Key{Root: root}); err == nil && string(got) != "rows" {
			t.Errorf("%q opens", got)
		}
	})
}
