package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
)

// A Folder keeps files in a folder of this machine, as <workspace>/<two characters>/<digest>. No name that it is given
// leads out of the folder.
type Folder struct{ root *os.Root }

// incoming holds files that are being written. A start of the only server empties it.
const incoming = "incoming"

// OpenShared opens a folder that other servers may use too. What they are writing there stays; what was not written to
// for a day is removed.
func OpenShared(at string) (*Folder, error) {
	if err := os.MkdirAll(filepath.Join(at, incoming), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of artifacts: %w", err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, fmt.Errorf("open the folder of artifacts: %w", err)
	}
	left, err := fs.ReadDir(root.FS(), incoming)
	for _, entry := range left {
		if info, gone := entry.Info(); gone == nil && time.Since(info.ModTime()) > unusedFor {
			err = errors.Join(err, root.Remove(path.Join(incoming, entry.Name())))
		}
	}
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("clean the folder of incoming artifacts: %w", err)
	}
	return &Folder{root}, nil
}

// identity is the file that names a folder, so that servers can tell whether they have the same.
const identity = "id"

// Name implements Backend: every server that uses the folder reads the same.
func (f *Folder) Name() (string, error) {
	made, err := f.root.OpenFile(identity, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = made.WriteString(id.New("files"))
		err = errors.Join(err, made.Sync(), made.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("name the folder of artifacts: %w", err)
	}
	text, err := f.root.ReadFile(identity)
	if err != nil {
		return "", fmt.Errorf("read the name of the folder of artifacts: %w", err)
	}
	if len(text) == 0 {
		return "", errors.New("the name of the folder of artifacts is being written")
	}
	return "folder " + string(text), nil
}

// OpenFolder opens a folder of one server, and makes it where it is missing.
func OpenFolder(at string) (*Folder, error) {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of artifacts: %w", err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, fmt.Errorf("open the folder of artifacts: %w", err)
	}
	if err = root.RemoveAll(incoming); err == nil {
		err = root.Mkdir(incoming, 0o700)
	}
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("empty the folder of incoming artifacts: %w", err)
	}
	return &Folder{root}, nil
}

// Close ends the use of the folder.
func (f *Folder) Close() error { return f.root.Close() }

func place(ws tenant.ID, d Digest) string { return path.Join(string(ws), string(d[:2]), string(d)) }

// Put implements Backend. The file appears under its name when all of it is on the disk.
func (f *Folder) Put(ctx context.Context, ws tenant.ID, file File, from io.Reader) error {
	if _, err := f.Size(ctx, ws, file.Digest); err == nil {
		return f.compare(ctx, file, from)
	}
	at := path.Join(incoming, id.New("in"))
	to, err := f.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("store an artifact: %w", err)
	}
	err = copyExactly(ctx, to, file, from)
	if err == nil {
		err = to.Sync()
	}
	err = errors.Join(err, to.Close())
	if err == nil {
		err = f.publish(at, ws, file.Digest)
	}
	if err != nil {
		_ = f.root.Remove(at) // the next start removes it
		return fmt.Errorf("store an artifact: %w", err)
	}
	return nil
}

// compare reads what is stored already, so that a sender learns whether its bytes are the named ones.
func (f *Folder) compare(ctx context.Context, file File, from io.Reader) error {
	if err := copyExactly(ctx, io.Discard, file, from); err != nil {
		return fmt.Errorf("store an artifact: %w", err)
	}
	return nil
}

// copyExactly copies the bytes of a file, and fails with ErrMismatch if they are others, more or fewer.
func copyExactly(ctx context.Context, to io.Writer, file File, from io.Reader) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(readerOf(ctx, from), file.Bytes+1))
	switch {
	case err != nil:
		return err
	case n != file.Bytes:
		return fmt.Errorf("%w: %d bytes were named, and at least %d came", ErrMismatch, file.Bytes, n)
	}
	if got := Digest(hex.EncodeToString(sum.Sum(nil))); got != file.Digest {
		return fmt.Errorf("%w: their digest is %s", ErrMismatch, got)
	}
	return nil
}

// publish moves a file under its name, and makes that durable.
func (f *Folder) publish(from string, ws tenant.ID, d Digest) error {
	to := place(ws, d)
	if err := f.root.MkdirAll(path.Dir(to), 0o700); err != nil {
		return err
	}
	if err := f.root.Rename(from, to); err != nil {
		return err
	}
	for dir := path.Dir(to); ; dir = path.Dir(dir) {
		if err := f.sync(dir); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

func (f *Folder) sync(dir string) error {
	open, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(open.Sync(), open.Close())
}

// Open implements Backend.
func (f *Folder) Open(_ context.Context, ws tenant.ID, d Digest) (io.ReadCloser, error) {
	open, err := f.root.Open(place(ws, d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	return open, err
}

// Size implements Backend.
func (f *Folder) Size(_ context.Context, ws tenant.ID, d Digest) (int64, error) {
	info, err := f.root.Stat(place(ws, d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, ErrMissing
	case err != nil:
		return 0, err
	}
	return info.Size(), nil
}

// Delete implements Backend.
func (f *Folder) Delete(_ context.Context, ws tenant.ID, d Digest) error {
	if err := f.root.Remove(place(ws, d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete an artifact: %w", err)
	}
	return nil
}

// Ready implements Backend.
func (f *Folder) Ready(context.Context) error { return nil }

// Upload implements Backend: the server passes the bytes on.
func (f *Folder) Upload(context.Context, tenant.ID, File) (Transfer, error) { return Transfer{}, nil }

// Download implements Backend: the server passes the bytes on.
func (f *Folder) Download(context.Context, tenant.ID, File) (Transfer, error) {
	return Transfer{}, nil
}

// readerOf returns a reader that ends with its context.
func readerOf(ctx context.Context, from io.Reader) io.Reader { return &contextual{ctx, from} }

type contextual struct {
	ctx  context.Context //nolint:containedctx // it bounds one copy
	from io.Reader
}

// Read implements io.Reader.
func (c *contextual) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.from.Read(p)
}

// unusedFor is how long a file that nothing refers to is kept: a worker may be about to refer to it.
const unusedFor = 24 * time.Hour
