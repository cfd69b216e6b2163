package vault

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const purpose = "provider key of ws_1 for openai"

// A fixture is a database with its vault, something sealed in it, and a copy of its first root key.
type fixture struct {
	db     *db.DB
	vault  *Vault
	path   string
	old    *Root
	sealed []byte
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { test(t, build(t, d)) })
}

func build(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{db: d, path: filepath.Join(t.TempDir(), "root.key")}
	root, err := CreateRoot(f.path)
	if err != nil {
		t.Fatal(err)
	}
	f.old = &Root{path: "a copy of the first root key", handle: root.handle}
	if f.vault, err = Open(t.Context(), d, root); err != nil {
		t.Fatal(err)
	}
	if f.sealed, err = f.vault.Seal([]byte("canary"), purpose); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) rows(t *testing.T) []dataKey {
	t.Helper()
	keys, err := readDataKeys(t.Context(), f.db.Across("test"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (f *fixture) load(t *testing.T) *Root {
	t.Helper()
	root, err := LoadRoot(f.path)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// opens checks that v decrypts the value that was sealed first.
func (f *fixture) opens(t *testing.T, v *Vault) {
	t.Helper()
	if plain, err := v.Unseal(f.sealed, purpose); err != nil || string(plain) != "canary" {
		t.Errorf("unsealed %q %v", plain, err)
	}
}

// settled checks that a rotation is complete: the file has one key, and the database opens with it and not with the
// old one.
func (f *fixture) settled(t *testing.T) {
	t.Helper()
	root := f.load(t)
	if root.rotating() || root.ID() == f.old.ID() || f.rows(t)[0].RootID != root.ID() {
		t.Errorf("the file holds %d keys, first %s; the database needs %s; the old one was %s", root.handle.Len(), root.ID(), f.rows(t)[0].RootID, f.old.ID())
	}
	if err := Check(t.Context(), f.db, f.old); !errors.Is(err, ErrWrongRoot) {
		t.Errorf("the old root key: %v", err)
	}
	v, err := Open(t.Context(), f.db, root)
	if err != nil {
		t.Fatal(err)
	}
	f.opens(t, v)
}

func TestASealedValueOpensForItsPurposeOnly(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		rapid.Check(t, func(t *rapid.T) {
			plain, why := rapid.SliceOf(rapid.Byte()).Draw(t, "plain"), rapid.String().Draw(t, "purpose")
			sealed, err := f.vault.Seal(plain, why)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := f.vault.Unseal(sealed, why); err != nil || !bytes.Equal(back, plain) {
				t.Fatalf("%x became %x %v", plain, back, err)
			}
			if len(plain) >= 8 && bytes.Contains(sealed, plain) {
				t.Fatalf("%x is readable in %x", plain, sealed)
			}
			other := rapid.String().Filter(func(s string) bool { return s != why }).Draw(t, "other")
			if back, err := f.vault.Unseal(sealed, other); !errors.Is(err, ErrSealed) || back != nil {
				t.Fatalf("opens for %q: %x %v", other, back, err)
			}
		})
	})
}

func TestOneChangedByteDoesNotOpen(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for i := range f.sealed {
			changed := bytes.Clone(f.sealed)
			changed[i] ^= 1 << (i % 8)
			if plain, err := f.vault.Unseal(changed, purpose); !errors.Is(err, ErrSealed) || plain != nil {
				t.Errorf("byte %d changed: %q %v", i, plain, err)
			}
			if plain, err := f.vault.Unseal(f.sealed[:i], purpose); !errors.Is(err, ErrSealed) || plain != nil {
				t.Errorf("cut to %d bytes: %q %v", i, plain, err)
			}
		}
	})
}

func TestAReopenedVaultReadsWhatWasSealed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		before := f.rows(t)
		v, err := Open(t.Context(), f.db, f.load(t))
		if err != nil {
			t.Fatal(err)
		}
		f.opens(t, v)
		if !reflect.DeepEqual(f.rows(t), before) {
			t.Error("reopening changed the data keys")
		}
	})
}

func TestAWrongRootKeyIsRefusedAndChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		wrong, err := CreateRoot(filepath.Join(t.TempDir(), "wrong.key"))
		if err != nil {
			t.Fatal(err)
		}
		twoWrong, err := wrong.withNewKey()
		if err != nil {
			t.Fatal(err)
		}
		before := f.rows(t)
		for _, root := range []*Root{wrong, twoWrong} {
			if _, err := Open(t.Context(), f.db, root); !errors.Is(err, ErrWrongRoot) {
				t.Errorf("open: %v", err)
			}
			if err := Check(t.Context(), f.db, root); !errors.Is(err, ErrWrongRoot) {
				t.Errorf("check: %v", err)
			}
		}
		if !reflect.DeepEqual(f.rows(t), before) {
			t.Error("the data keys were changed")
		}
	})
}

func TestEmptyUntilTheFirstOpen(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		root, err := CreateRoot(filepath.Join(t.TempDir(), "root.key"))
		if err != nil {
			t.Fatal(err)
		}
		if empty, err := Empty(t.Context(), d); err != nil || !empty {
			t.Errorf("a fresh database: %v %v", empty, err)
		}
		if err := Check(t.Context(), d, root); err != nil {
			t.Errorf("any root key may open a fresh database: %v", err)
		}
		if _, err := Open(t.Context(), d, root); err != nil {
			t.Fatal(err)
		}
		if empty, err := Empty(t.Context(), d); err != nil || empty {
			t.Errorf("after opening: %v %v", empty, err)
		}
	})
}

func TestRotationKeepsSealedValuesAndRetiresTheOldKey(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		done, err := f.vault.RotateRoot(t.Context(), tenant.Operator)
		if err != nil || done.From != f.old.ID() || done.To != f.load(t).ID() {
			t.Fatalf("%+v, %v", done, err)
		}
		kept, err := LoadRoot(done.Kept)
		if err != nil || kept.ID() != f.old.ID() {
			t.Errorf("the old key was not kept in %s: %v", done.Kept, err)
		}
		entries, err := audit.List(t.Context(), f.db, tenant.Server, "root_key.rotate", 10, 0)
		if err != nil || len(entries) != 1 || string(entries[0].After) != `{"root_key_id":"`+done.To+`"}` {
			t.Errorf("audited %v, %v", entries, err)
		}
		f.opens(t, f.vault)
		f.settled(t)
		if again, err := f.vault.RotateRoot(t.Context(), tenant.Operator); err != nil || again.From != done.To {
			t.Errorf("a second rotation starts from %s, %v", again.From, err)
		}
		f.settled(t)
	})
}

func TestAnInterruptedRotationIsFinishedByTheNextOpen(t *testing.T) {
	for step, interrupt := range map[string]func(t *testing.T, f *fixture, both *Root) error{
		"both keys are in the file": func(*testing.T, *fixture, *Root) error { return nil },
		"the data keys are wrapped anew, the old key is still in the file": func(t *testing.T, f *fixture, both *Root) error {
			return errors.Join(f.vault.finishRotation(t.Context(), tenant.Operator, both), both.save())
		},
	} {
		t.Run(step, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				both, err := f.load(t).withNewKey()
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(both.save(), interrupt(t, f, both)); err != nil {
					t.Fatal(err)
				}
				root := f.load(t)
				if !root.rotating() {
					t.Fatal("nothing was interrupted")
				}
				v, err := Open(t.Context(), f.db, root)
				if err != nil {
					t.Fatal(err)
				}
				f.opens(t, v)
				f.settled(t)
			})
		})
	}
}

func TestARotationThatFailsCanBeRepeated(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		rename := func(from, to string) {
			if _, err := db.Exec(t.Context(), f.db.Across("test"), `ALTER TABLE `+from+` RENAME TO `+to); err != nil {
				t.Fatal(err)
			}
		}
		rename("audit_entries", "elsewhere")
		for range 2 {
			if _, err := f.vault.RotateRoot(t.Context(), tenant.Operator); err == nil {
				t.Fatal("a rotation happened that could not be audited")
			}
			root := f.load(t)
			if err := Check(t.Context(), f.db, root); err != nil {
				t.Fatalf("the file does not open the database: %v", err)
			}
			if !root.rotating() {
				t.Fatal("the new key was not yet in the file when the data keys were to be wrapped with it")
			}
		}
		rename("elsewhere", "audit_entries")
		if _, err := f.vault.RotateRoot(t.Context(), tenant.Operator); err != nil {
			t.Fatal(err)
		}
		f.settled(t)
	})
}

// Another server may have rotated since this one read the file. Whatever this one does then, the file opens the data.
func TestRotationStartsFromTheFileAsItIsNow(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		other, err := Open(t.Context(), f.db, f.load(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.RotateRoot(t.Context(), tenant.Operator); err != nil {
			t.Fatal(err)
		}
		if _, err := f.vault.RotateRoot(t.Context(), tenant.Operator); err != nil {
			t.Errorf("from a key that another server made: %v", err)
		}
		f.opens(t, f.vault)
		f.settled(t)
		before, err := CreateRoot(f.path) // a file that has nothing to do with the database
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.vault.RotateRoot(t.Context(), tenant.Operator); !errors.Is(err, ErrWrongRoot) {
			t.Errorf("with a strange file: %v", err)
		}
		if after := f.load(t); after.ID() != before.ID() || after.rotating() {
			t.Error("a refused rotation wrote the file")
		}
	})
}

func TestRotationWithinATransactionIsRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		before, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.db.Tx(t.Context(), func(tx *db.Tx) error {
			if _, err := f.vault.RotateRoot(tx.Bind(t.Context()), tenant.Operator); err == nil {
				t.Error("rotated")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(f.path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the file was changed, %v", err)
		}
	})
}

func TestRootKeyFilesAreReadableByTheirOwnerOnly(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		check := func(want int) {
			t.Helper()
			names, err := os.ReadDir(filepath.Dir(f.path))
			if err != nil || len(names) != want {
				t.Errorf("the folder holds %v %v", names, err)
			}
			for _, name := range names {
				if info, err := name.Info(); err != nil || info.Mode() != 0o600 {
					t.Errorf("mode of %s: %v %v", name, info.Mode(), err)
				}
			}
		}
		check(1)
		if _, err := f.vault.RotateRoot(t.Context(), tenant.Operator); err != nil {
			t.Fatal(err)
		}
		check(2)
	})
}

func TestInvalidRootKeyFilesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.key")
	if _, err := LoadRoot(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, text := range []string{"", "canary", "{}", `{"primaryKeyId":1,"key":[]}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if root, err := LoadRoot(path); err == nil || errors.Is(err, fs.ErrNotExist) || bytes.Contains([]byte(err.Error()), []byte("canary")) {
			t.Errorf("%q: %v %v", text, root, err)
		}
	}
}
