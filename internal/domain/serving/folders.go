package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
)

// A File is a file of a model version.
type File struct {
	Name string `json:"name"` // a relative path
	artifact.File
}

// FoldersConfig is what Folders needs.
type FoldersConfig struct {
	Root string // the folder of folders
	// Shared says that other servers may make folders in it too.
	Shared bool
	Files  func(ctx context.Context, ws tenant.ID, versionID string) ([]File, error)
	Open   func(ctx context.Context, ws tenant.ID, d artifact.Digest) (io.ReadCloser, error) // it fails for other bytes
	// folders that deployments name
	Used func(ctx context.Context) ([]string, error)
}

// Folders brings the files of model versions to folders of this machine, where engines read them. Versions with the
// same files share one, whose name is the digest of their list. A folder is whole, with every byte compared, or is not
// there.
type Folders struct {
	FoldersConfig
	now func() time.Time

	mu      sync.Mutex
	folders map[artifact.Digest]*folder
}

type folder struct {
	holds int
	used  time.Time     // last
	busy  chan struct{} // of one element: held while the folder is made or removed
	whole bool          // seen by this process
}

// unusedFor is how long a folder is kept that nobody holds: its user may be about to start.
const unusedFor = time.Hour

const beingMade = "new-"

// tornFor is how long a folder that another server makes may be left as it is.
const tornFor = 24 * time.Hour

// OpenFolders opens the folders in a root, and removes those that were not completed.
func OpenFolders(c FoldersConfig) (*Folders, error) {
	if err := os.MkdirAll(c.Root, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of models: %w", err)
	}
	torn, err := filepath.Glob(filepath.Join(c.Root, beingMade+"*"))
	for _, at := range torn {
		if info, gone := os.Stat(at); c.Shared && (gone != nil || time.Since(info.ModTime()) < tornFor) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(at))
	}
	if err != nil {
		return nil, fmt.Errorf("empty the folder of models: %w", err)
	}
	return &Folders{FoldersConfig: c, now: time.Now, folders: map[artifact.Digest]*folder{}}, nil
}

// Get returns the folder of a version's files. It is kept until release is called; to call it again does nothing.
func (f *Folders) Get(ctx context.Context, ws tenant.ID, versionID string) (at string, release func(), err error) {
	files, err := f.Files(ctx, ws, versionID)
	if err != nil {
		return "", nil, err
	}
	digest, err := digestOf(files)
	if err != nil {
		return "", nil, err
	}
	one := f.hold(digest)
	release = sync.OnceFunc(func() { f.release(one) })
	if err := f.complete(ctx, ws, one, digest, files); err != nil {
		release()
		return "", nil, err
	}
	return f.place(digest), release, nil
}

// Folder returns the folder of a version's files, for a deployment that is about to name it. It is kept for an hour,
// and then as long as a deployment does.
func (f *Folders) Folder(ctx context.Context, ws tenant.ID, versionID string) (string, error) {
	at, release, err := f.Get(ctx, ws, versionID)
	if err == nil {
		release()
	}
	return at, err
}

func (f *Folders) place(d artifact.Digest) string { return filepath.Join(f.Root, string(d)) }

func digestOf(files []File) (artifact.Digest, error) {
	text, err := json.Marshal(files, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("name the folder of a version: %w", err)
	}
	return artifact.DigestOf(text), nil
}

func (f *Folders) hold(d artifact.Digest) *folder {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.folders[d]
	if one == nil {
		one = &folder{busy: make(chan struct{}, 1)}
		f.folders[d] = one
	}
	one.holds++
	one.used = f.now()
	return one
}

func (f *Folders) release(one *folder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.holds--
	one.used = f.now()
}

// complete makes a folder, unless it is there. Other callers that want the same one wait.
func (f *Folders) complete(ctx context.Context, ws tenant.ID, one *folder, d artifact.Digest, files []File) error {
	select {
	case one.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-one.busy }()
	if one.whole || complete(f.place(d), files) {
		one.whole = true
		return nil
	}
	made := filepath.Join(f.Root, beingMade+id.New("fld"))
	err := f.fetch(ctx, ws, made, files)
	if err == nil {
		if err = os.RemoveAll(f.place(d)); err == nil { // what is there is not whole
			err = os.Rename(made, f.place(d))
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("fetch a model version: %w", err), os.RemoveAll(made))
	}
	one.whole = true
	return nil
}

// complete reports whether a folder has all files, by their lengths: their bytes were compared when they came.
func complete(at string, files []File) bool {
	for _, file := range files {
		info, err := os.Stat(filepath.Join(at, filepath.FromSlash(file.Name)))
		if err != nil || info.Size() != file.Bytes {
			return false
		}
	}
	return len(files) > 0
}

// fetch writes all files to a new folder.
func (f *Folders) fetch(ctx context.Context, ws tenant.ID, to string, files []File) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(to) // no name leads out of it
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, file := range files {
		if err := f.write(ctx, ws, root, file); err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
	}
	return nil
}

func (f *Folders) write(ctx context.Context, ws tenant.ID, root *os.Root, file File) error {
	if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(file.Name)), 0o700); err != nil {
		return err
	}
	from, err := f.Open(ctx, ws, file.Digest)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := root.OpenFile(filepath.FromSlash(file.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, from)
	if err == nil && n != file.Bytes {
		err = fmt.Errorf("%w: %d bytes, and not %d", artifact.ErrMismatch, n, file.Bytes)
	}
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// Sweep removes the folders that nobody holds, that no deployment names, and that were not used for an hour.
func (f *Folders) Sweep(ctx context.Context) error {
	used, err := f.Used(ctx)
	if err != nil {
		return fmt.Errorf("list the folders that engines use: %w", err)
	}
	named := map[string]bool{}
	for _, at := range used {
		named[filepath.Base(at)] = true
	}
	entries, err := os.ReadDir(f.Root)
	if err != nil {
		return fmt.Errorf("list the folders of models: %w", err)
	}
	for _, entry := range entries {
		if d := artifact.Digest(entry.Name()); d.Valid() && !named[entry.Name()] {
			err = errors.Join(err, f.remove(d))
		}
	}
	return err
}

// remove removes a folder that was not used for long enough.
func (f *Folders) remove(d artifact.Digest) error {
	one := f.known(d)
	select {
	case one.busy <- struct{}{}:
	default:
		return nil // it is being made
	}
	defer func() { <-one.busy }()
	f.mu.Lock()
	idle := one.holds == 0 && f.now().Sub(one.used) >= unusedFor
	f.mu.Unlock()
	if !idle {
		return nil
	}
	one.whole = false // a caller that wants it now waits, and makes it again
	// Moved away first: a folder that has its name is whole.
	away := filepath.Join(f.Root, beingMade+string(d))
	if err := os.Rename(f.place(d), away); err != nil {
		return fmt.Errorf("remove the folder of a model: %w", err)
	}
	return os.RemoveAll(away)
}

// known returns what is known of a folder. One that an earlier server has left counts as used now.
func (f *Folders) known(d artifact.Digest) *folder {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.folders[d]
	if one == nil {
		one = &folder{busy: make(chan struct{}, 1), used: f.now()}
		f.folders[d] = one
	}
	return one
}
