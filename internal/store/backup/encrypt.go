package backup

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/tink-crypto/tink-go/v2/streamingaead/subtle"
	"golang.org/x/crypto/argon2"

	"sovereign/internal/store/vault"
)

// An encrypted backup begins with the magic line, the length of a JSON envelope as 32 bits, and the envelope, which
// says how the key was derived. The rest is AES-256-GCM-HKDF with segments of 1 MiB, as Tink defines it: the nonce of
// a segment has its number and whether it is the last, so that a missing or moved segment does not decrypt. The
// beginning is the associated data.
const (
	magic       = "sovereign encrypted backup 1\n"
	maxEnvelope = 4 << 10
	segmentSize = 1 << 20
	purpose     = "sovereign backup"
)

// ErrPlain reports a backup of an earlier release, which is neither encrypted nor authenticated.
var ErrPlain = errors.New("the backup is not encrypted, and anybody may have changed it")

// ErrKey reports that a backup needs another key.
var ErrKey = errors.New("the backup does not open with this key")

// A Key is what backups are encrypted with: a passphrase or, without one, the root key.
type Key struct {
	Root       *vault.Root
	Passphrase []byte
}

// An envelope says how the key of a file is derived.
type envelope struct {
	KDF     string `json:"kdf"`
	RootID  string `json:"root_id,omitempty"`
	Salt    []byte `json:"salt"`
	Time    uint32 `json:"time,omitempty"`
	Memory  uint32 `json:"memory_kib,omitempty"`
	Threads uint8  `json:"threads,omitempty"`
}

const (
	fromRoot       = "hkdf-sha256 of the root key"
	fromPassphrase = "argon2id"
)

// RFC 9106's second recommendation. A file may ask for more, up to the bounds, which protect the reader's memory.
const (
	argonTime, maxArgonTime     = 3, 16
	argonMemory, maxArgonMemory = 64 << 10, 1 << 20 // KiB
	argonThreads                = 4
)

// newEnvelope returns the envelope of a new file.
func (k Key) newEnvelope() envelope {
	e := envelope{
		KDF: fromPassphrase, Salt: make([]byte, 32), Time: argonTime, Memory: argonMemory, Threads: argonThreads,
	}
	if len(k.Passphrase) == 0 {
		e = envelope{KDF: fromRoot, RootID: k.Root.ID(), Salt: e.Salt}
	}
	_, _ = rand.Read(e.Salt) // it never fails
	return e
}

// derive returns the key of a file.
func (k Key) derive(e envelope) ([]byte, error) {
	switch {
	case e.KDF == fromRoot && k.Root == nil:
		return nil, fmt.Errorf("%w: it needs root key %s", ErrKey, e.RootID)
	case e.KDF == fromRoot:
		key, err := k.Root.Derive(e.RootID, purpose, e.Salt)
		if errors.Is(err, vault.ErrOtherRoot) {
			err = fmt.Errorf("%w: %w", ErrKey, err)
		}
		return key, err
	case e.KDF == fromPassphrase && len(k.Passphrase) == 0:
		return nil, fmt.Errorf("%w: it needs a passphrase", ErrKey)
	case e.KDF == fromPassphrase && e.Time >= 1 && e.Time <= maxArgonTime && e.Memory <= maxArgonMemory &&
		e.Threads >= 1:
		return argon2.IDKey(k.Passphrase, e.Salt, e.Time, e.Memory, e.Threads, 32), nil
	default:
		return nil, fmt.Errorf("%w: its key is derived in a way that this release does not know", ErrBroken)
	}
}

// Encrypt returns a writer that encrypts to out. The file is complete when the writer is closed.
func Encrypt(out io.Writer, key Key) (io.WriteCloser, error) {
	e := key.newEnvelope()
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	head := append(binary.BigEndian.AppendUint32([]byte(magic), uint32(len(text))), text...)
	derived, err := key.derive(e)
	if err != nil {
		return nil, err
	}
	cipher, err := subtle.NewAESGCMHKDF(derived, "SHA256", 32, segmentSize, 0)
	if err != nil {
		return nil, err
	}
	if _, err := out.Write(head); err != nil {
		return nil, err
	}
	return cipher.NewEncryptingWriter(out, head)
}

// Decrypt returns a reader of the backup that in holds encrypted. With ErrPlain it returns a reader of a backup that
// is not encrypted.
func Decrypt(in io.Reader, key Key) (io.Reader, error) {
	buffered := bufio.NewReader(in)
	begin, err := buffered.Peek(len(magic) + 4)
	if bytes.HasPrefix(begin, []byte{0x1f, 0x8b}) { // gzip
		return buffered, ErrPlain
	}
	if err != nil || !bytes.HasPrefix(begin, []byte(magic)) {
		return nil, fmt.Errorf("%w: it does not begin like one", ErrBroken)
	}
	size := binary.BigEndian.Uint32(begin[len(magic):])
	if size > maxEnvelope {
		return nil, fmt.Errorf("%w: it does not begin like one", ErrBroken)
	}
	head := make([]byte, len(begin)+int(size))
	var e envelope
	if _, err := io.ReadFull(buffered, head); err != nil {
		return nil, fmt.Errorf("%w: it breaks off", ErrBroken)
	}
	if err := json.Unmarshal(head[len(begin):], &e, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: it does not begin like one", ErrBroken)
	}
	derived, err := key.derive(e)
	if err != nil {
		return nil, err
	}
	cipher, err := subtle.NewAESGCMHKDF(derived, "SHA256", 32, segmentSize, 0)
	if err != nil {
		return nil, err
	}
	plain, err := cipher.NewDecryptingReader(buffered, head)
	if err != nil {
		return nil, fmt.Errorf("%w: it breaks off", ErrBroken)
	}
	return &decrypted{from: plain}, nil
}

// decrypted reports a segment that does not decrypt as ErrBroken, and never continues after it.
type decrypted struct {
	from io.Reader
	err  error
}

func (d *decrypted) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	n, err := d.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it was changed or cut off, or the passphrase is wrong", ErrBroken)
	}
	d.err = err
	return n, err
}
