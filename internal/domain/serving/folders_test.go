package serving

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
)

// stored is a store of files in memory.
type stored struct {
	files map[string][]File
	bytes map[artifact.Digest]string
	opens atomic.Int64
	used  []string
}

func newStored() *stored {
	return &stored{files: map[string][]File{}, bytes: map[artifact.Digest]string{}}
}

func (s *stored) add(version string, contents map[string]string) {
	for _, name := range []string{"adapter/config.json", "config.json", "weights"} {
		text, ok := contents[name]
		if !ok {
			continue
		}
		d := artifact.DigestOf([]byte(text))
		s.bytes[d] = text
		s.files[version] = append(s.files[version], File{name, artifact.File{Digest: d, Bytes: int64(len(text))}})
	}
}

func (s *stored) folders(t *testing.T, root string) *Folders {
	t.Helper()
	f, err := OpenFolders(FoldersConfig{
		Root:  root,
		Files: func(_ context.Context, _ tenant.ID, id string) ([]File, error) { return s.files[id], nil },
		Open: func(_ context.Context, _ tenant.ID, d artifact.Digest) (io.ReadCloser, error) {
			s.opens.Add(1)
			text, ok := s.bytes[d]
			if !ok {
				return nil, artifact.ErrMissing
			}
			return io.NopCloser(strings.NewReader(text)), nil
		},
		Used: func(context.Context) ([]string, error) { return s.used, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func count(t *testing.T, root string) int {
	t.Helper()
	all, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestVersionsWithTheSameFilesShareAFolderThatIsFetchedOnce(t *testing.T) {
	s, root := newStored(), t.TempDir()
	for _, id := range []string{"mv_1", "mv_2"} {
		s.add(id, map[string]string{"config.json": "{}", "weights": "www", "adapter/config.json": "a"})
	}
	f := s.folders(t, root)
	var work sync.WaitGroup
	got := make([]string, 20)
	for i := range got {
		work.Go(func() {
			at, _, err := f.Get(t.Context(), "ws_1", []string{"mv_1", "mv_2"}[i%2])
			if err != nil {
				t.Error(err)
			}
			got[i] = at
		})
	}
	work.Wait()
	for _, at := range got {
		if at != got[0] {
			t.Fatalf("two folders: %s and %s", at, got[0])
		}
	}
	if s.opens.Load() != 3 || read(t, got[0], "adapter", "config.json") != "a" || read(t, got[0], "weights") != "www" {
		t.Errorf("%d files were opened", s.opens.Load())
	}
	again := s.folders(t, root) // of another server
	if at, err := again.Folder(t.Context(), "ws_1", "mv_1"); err != nil || at != got[0] || s.opens.Load() != 3 {
		t.Errorf("%s %v, %d opened", at, err, s.opens.Load())
	}
}

func TestAFolderIsWholeOrNotThere(t *testing.T) {
	s, root := newStored(), t.TempDir()
	s.add("mv_1", map[string]string{"config.json": "{}", "weights": "www"})
	weights := artifact.DigestOf([]byte("www"))
	delete(s.bytes, weights)
	f := s.folders(t, root)
	if _, _, err := f.Get(t.Context(), "ws_1", "mv_1"); !errors.Is(err, artifact.ErrMissing) || count(t, root) != 0 {
		t.Fatalf("a missing file: %v, %d folders", err, count(t, root))
	}
	s.bytes[weights] = "wwww"
	if _, _, err := f.Get(t.Context(), "ws_1", "mv_1"); !errors.Is(err, artifact.ErrMismatch) || count(t, root) != 0 {
		t.Fatalf("a longer file: %v, %d folders", err, count(t, root))
	}
	s.bytes[weights] = "www"
	at, _, err := f.Get(t.Context(), "ws_1", "mv_1")
	if err != nil {
		t.Fatal(err)
	}
	// A server that was killed leaves a part; a folder that lost a file is made again by the next server.
	if err := errors.Join(os.Mkdir(filepath.Join(root, "new-x"), 0o700), os.Remove(filepath.Join(at, "weights"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.folders(t, root).Folder(t.Context(), "ws_1", "mv_1"); err != nil || read(t, at, "weights") != "www" || count(t, root) != 1 {
		t.Errorf("%v, %d folders", err, count(t, root))
	}
}

func TestNoNameLeadsOutOfTheFolder(t *testing.T) {
	s, root := newStored(), t.TempDir()
	d := artifact.DigestOf([]byte("x"))
	s.bytes[d], s.files["mv_1"] = "x", []File{{"../../x", artifact.File{Digest: d, Bytes: 1}}}
	if _, _, err := s.folders(t, filepath.Join(root, "a", "b")).Get(t.Context(), "ws_1", "mv_1"); err == nil {
		t.Error("it was written")
	}
	if _, err := os.Stat(filepath.Join(root, "x")); err == nil {
		t.Error("there is a file outside")
	}
}

func TestAnUnusedFolderIsRemoved(t *testing.T) {
	s, root := newStored(), t.TempDir()
	s.add("mv_1", map[string]string{"weights": "www"})
	f := s.folders(t, root)
	now := time.Now()
	f.now = func() time.Time { return now }
	at, release, err := f.Get(t.Context(), "ws_1", "mv_1")
	if err != nil {
		t.Fatal(err)
	}
	sweep := func(what string, left int) {
		t.Helper()
		if err := f.Sweep(t.Context()); err != nil || count(t, root) != left {
			t.Fatalf("%s: %d folders, want %d: %v", what, count(t, root), left, err)
		}
	}
	now = now.Add(2 * time.Hour)
	sweep("held", 1)
	release()
	release()
	sweep("released now", 1)
	now = now.Add(2 * time.Hour)
	s.used = []string{at}
	sweep("named by a deployment", 1)
	s.used = nil
	sweep("unused", 0)
	if _, _, err := f.Get(t.Context(), "ws_1", "mv_1"); err != nil || read(t, at, "weights") != "www" {
		t.Errorf("fetched again: %v", err)
	}
}
