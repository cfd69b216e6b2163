package artifact

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func named(text string) File { return File{DigestOf([]byte(text)), int64(len(text))} }

func newFolder(t *testing.T) (*Folder, string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "artifacts")
	f, err := OpenFolder(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, at
}

func TestAStartEmptiesWhatWasComing(t *testing.T) {
	_, at := newFolder(t)
	if err := os.WriteFile(filepath.Join(at, incoming, "in_1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := OpenFolder(at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if left, err := os.ReadDir(filepath.Join(at, incoming)); err != nil || len(left) != 0 {
		t.Errorf("incoming has %v: %v", left, err)
	}
}

func eachStore(t *testing.T, test func(t *testing.T, s *Store, at string)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		f, at := newFolder(t)
		test(t, NewStore(d, f), at)
	})
}

func TestBytesThatChangedOnTheDiskAreNotRead(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store, at string) {
		f, err := s.Add(t.Context(), dbtest.Mine, strings.NewReader("a checkpoint"), 100)
		if err != nil || f != named("a checkpoint") {
			t.Fatal(f, err)
		}
		path := filepath.Join(at, filepath.FromSlash(place(dbtest.Mine, f.Digest)))
		if err := os.WriteFile(path, []byte("a checkpoinT"), 0o600); err != nil {
			t.Fatal(err)
		}
		from, err := s.Open(t.Context(), dbtest.Mine, f.Digest)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = from.Close() }()
		if _, err := io.ReadAll(from); !errors.Is(err, ErrMismatch) {
			t.Errorf("read to its end: %v", err)
		}
	})
}

func TestOnlyWhatNothingRefersToIsDeletedAfterADay(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		now := clock.Now()
		s.now = func() clock.Time { return now }
		var files []File
		for _, text := range []string{"kept", "released", "never referred to"} {
			f, err := s.Add(ctx, dbtest.Mine, strings.NewReader(text), 100)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		s.change(t, func(tx *db.Tx) error {
			return errors.Join(s.Refer(ctx, tx, dbtest.Mine, "ckpt_1", files[0]), s.Refer(ctx, tx, dbtest.Mine, "ckpt_2", files[1]))
		})
		s.change(t, func(tx *db.Tx) error { return s.Release(ctx, tx, dbtest.Mine, "ckpt_2") })
		s.wantStored(t, files, true, true, true)
		now = now.Add(unusedFor + time.Second)
		if to, err := s.Offer(ctx, dbtest.Mine, files[2]); err != nil || to != nil { // a worker is about to refer to it
			t.Errorf("%v %v", to, err)
		}
		s.wantStored(t, files, true, false, true)
		now = now.Add(unusedFor + time.Second)
		s.wantStored(t, files, true, false, false)
		_, err := s.db.Tx(ctx, func(tx *db.Tx) error { return s.Refer(ctx, tx, dbtest.Mine, "ckpt_3", files[2]) })
		if f := fault.From(err); f.Kind != fault.Conflicting {
			t.Errorf("a reference to a deleted file: %v", err)
		}
	})
}

func (s *Store) change(t *testing.T, fn func(*db.Tx) error) {
	t.Helper()
	if _, err := s.db.Tx(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// wantStored sweeps, and checks which files are left.
func (s *Store) wantStored(t *testing.T, files []File, want ...bool) {
	t.Helper()
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		if err := s.Stored(t.Context(), dbtest.Mine, f); (err == nil) != want[i] {
			t.Errorf("file %d: want %v, got %v", i, want[i], err)
		}
	}
}

func TestAFileThatIsTooLargeIsRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store, _ string) {
		_, err := s.Add(t.Context(), dbtest.Mine, strings.NewReader("12345"), 4)
		if f := fault.From(err); f.Kind != fault.BodyTooLarge {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Add(ended, dbtest.Mine, strings.NewReader("1"), 4); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A slow is a backend whose deletions wait, and fail when they are told to.
type slow struct {
	Backend
	deleting func() error
}

func (s *slow) Delete(ctx context.Context, ws tenant.ID, d Digest) error {
	if err := s.deleting(); err != nil {
		return err
	}
	return s.Backend.Delete(ctx, ws, d)
}

// While the bytes of a file are deleted, no transaction waits, nobody sends the file, and nothing refers to it. When a
// deletion fails, or its server is killed, the next sweep ends it, and after some minutes the file can be sent again.
func TestAFileThatIsBeingDeletedIsNotUsed(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		now := clock.Now()
		s.now = func() clock.Time { return now }
		file, err := s.Add(ctx, dbtest.Mine, strings.NewReader("weights"), 100)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(unusedFor + time.Second)
		used := 0
		failing := &slow{s.backend, func() error {
			used++
			_, offered := s.Offer(ctx, dbtest.Mine, file)
			_, referred := s.db.Tx(ctx, func(tx *db.Tx) error { return s.Refer(ctx, tx, dbtest.Mine, "ckpt_1", file) })
			if fault.From(offered).Kind != fault.Unavailable || fault.From(referred).Kind != fault.Conflicting {
				t.Errorf("%v, %v", offered, referred)
			}
			return errors.New("it does not answer")
		}}
		s.backend = failing
		for range 2 {
			if err := s.Sweep(ctx); err == nil {
				t.Error("a failed deletion is not reported")
			}
		}
		now = now.Add(deletesFor + time.Second)
		if to, err := s.Offer(ctx, dbtest.Mine, file); to != nil || err != nil {
			t.Errorf("%v %v", to, err)
		}
		now = now.Add(unusedFor + time.Second)
		failing.deleting = func() error { return nil }
		s.wantStored(t, []File{file}, false)
		if used != 2 {
			t.Errorf("%d deletions", used)
		}
	})
}
