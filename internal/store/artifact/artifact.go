// Package artifact keeps large files that never change: training data, checkpoints, trained models. A file is named by
// the SHA-256 digest of its bytes, within its workspace. Its bytes are in a folder or in S3; a row says that they are
// there. What nothing refers to is deleted after a day.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"syscall"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
)

// A Digest is the SHA-256 digest of a file's bytes, in lower-case hex.
type Digest string

// DigestOf returns the digest of bytes.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest(hex.EncodeToString(sum[:]))
}

// Valid reports whether d has the form of a digest.
func (d Digest) Valid() bool {
	if len(d) != hex.EncodedLen(sha256.Size) {
		return false
	}
	for i := range len(d) {
		if c := d[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// A File names the bytes of a file.
type File struct {
	Digest Digest `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

// A Transfer is where a worker sends a file to or fetches it from without the server between. An empty URL says that
// the server passes it on.
type Transfer struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// A Backend keeps bytes. Its methods may be called at once, also for the same file.
type Backend interface {
	// Put stores a file. It refuses bytes that are not the named ones with ErrMismatch, and then keeps nothing of them.
	// When it returns nil, the bytes survive a power loss. To store a file again is a no-op.
	Put(ctx context.Context, ws tenant.ID, f File, from io.Reader) error
	// Open reads a file. ErrMissing says that it is not there.
	Open(ctx context.Context, ws tenant.ID, d Digest) (io.ReadCloser, error)
	// Size returns how many bytes of a file are there: ErrMissing, when it is not, or when its bytes are others.
	Size(ctx context.Context, ws tenant.ID, d Digest) (int64, error)
	// Delete deletes a file. To delete one that is not there is a no-op.
	Delete(ctx context.Context, ws tenant.ID, d Digest) error
	// Upload and Download let a worker reach the bytes by itself, for some minutes.
	Upload(ctx context.Context, ws tenant.ID, f File) (Transfer, error)
	Download(ctx context.Context, ws tenant.ID, f File) (Transfer, error)
	// Name names where the bytes are. Servers that share a database share that too.
	Name() (string, error)
	// Ready reports why no file can be stored or read now, and nil when nothing is known to be wrong.
	Ready(ctx context.Context) error
}

// Refusals of a backend.
var (
	ErrMissing  = errors.New("the file is not stored")
	ErrMismatch = errors.New("the bytes are not those that were named")
)

// retryIn is how long a client waits for a store that does not answer.
const retryIn = 5 * time.Second

// refusal returns what a client is told of an error of a backend.
func refusal(err error) error {
	switch {
	case errors.Is(err, ErrMismatch):
		return fault.InvalidParameter.Because(
			err, "the bytes are not those of the sha256 and the length that were named",
		)
	case errors.Is(err, ErrUnreachable):
		return fault.Unavailable.Because(err, "the store of training files does not answer").In(retryIn)
	case full(err):
		return fault.StorageFull.Because(err, "there is no room for the file: the disk of training files is full")
	}
	return err
}

// full reports whether an error is that of a disk without room.
func full(err error) bool {
	for _, code := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// verifying reads a file, and fails at its end if the bytes are not those of its name.
type verifying struct {
	io.ReadCloser
	sum  hash.Hash
	want Digest
}

// verify returns from as a reader that fails at its end if it was not the named file.
func verify(from io.ReadCloser, want Digest) io.ReadCloser {
	return &verifying{from, sha256.New(), want}
}

// Read implements io.Reader.
func (v *verifying) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.sum.Write(p[:n])
	if err == io.EOF {
		if got := Digest(hex.EncodeToString(v.sum.Sum(nil))); got != v.want {
			return n, fmt.Errorf("read %s: %w: they are %s", v.want, ErrMismatch, got)
		}
	}
	return n, err
}
