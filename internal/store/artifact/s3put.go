package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"sovereign/internal/base/tenant"
)

// Put implements Backend. The file is stored when its size and its checksum were read back.
func (s *S3) Put(ctx context.Context, ws tenant.ID, f File, from io.Reader) error {
	switch size, err := s.Size(ctx, ws, f.Digest); {
	case err == nil && size == f.Bytes:
		if err := copyExactly(ctx, io.Discard, f, from); err != nil {
			return fmt.Errorf("store an artifact: %w", err)
		}
		return nil
	case err != nil && !errors.Is(err, ErrMissing):
		return err
	}
	key := s.key(ws, f.Digest)
	body := &exact{from: readerOf(ctx, from), sum: sha256.New(), file: f, left: f.Bytes}
	var err error
	switch {
	case f.Bytes == 0:
		if body.err = body.compare(); body.err == nil {
			err = s.putWhole(ctx, key, f, http.NoBody)
		}
	case f.Bytes > s.single:
		err = s.putParts(ctx, key, f, body)
	default:
		err = s.putWhole(ctx, key, f, body)
	}
	switch {
	case body.err != nil: // of the sender, not of S3
		return fmt.Errorf("store an artifact: %w", body.err)
	case err != nil:
		return err
	}
	switch size, err := s.Size(ctx, ws, f.Digest); {
	case errors.Is(err, ErrMissing), err == nil && size != f.Bytes:
		return s.failed(ctx, "store an artifact", errors.New("S3 said that it has the file, and does not have it"))
	case err != nil:
		return err
	}
	return nil
}

// putWhole sends a file in one request.
func (s *S3) putWhole(ctx context.Context, key string, f File, body io.Reader) error {
	to, err := s.signedPut(ctx, key, f)
	if err != nil {
		return err
	}
	status, code, err := s.send(ctx, to, f.Bytes, body)
	switch {
	case err != nil:
		return s.failed(ctx, "send to S3", err)
	case status != http.StatusOK:
		return s.failed(ctx, "send to S3", fmt.Errorf("it answers %d %s", status, code))
	}
	return nil
}

// send makes the request of a signed upload, as workers do.
func (s *S3) send(ctx context.Context, to Transfer, size int64, body io.Reader) (status int, code string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, to.URL, body)
	if err != nil {
		return 0, "", err
	}
	request.ContentLength = size
	for name, value := range to.Headers {
		request.Header.Set(name, value)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if _, after, ok := strings.Cut(string(text), "<Code>"); ok {
		code, _, _ = strings.Cut(after, "</Code>")
	}
	return response.StatusCode, code, err
}

// putParts sends a file in parts. The last step, which makes them a file, follows when all bytes were compared.
func (s *S3) putParts(ctx context.Context, key string, f File, body io.Reader) (err error) {
	upload, err := s.core.NewMultipartUpload(ctx, s.config.Bucket, key, minio.PutObjectOptions{})
	if err != nil {
		return s.failed(ctx, "begin an upload to S3", err)
	}
	defer func() {
		if err != nil {
			late, cancel := short(context.WithoutCancel(ctx))
			defer cancel()
			_ = s.core.AbortMultipartUpload(late, s.config.Bucket, key, upload) // the bucket's own rules delete it
		}
	}()
	buffer := make([]byte, max(s.part, (f.Bytes+maxParts-1)/maxParts))
	var parts []minio.CompletePart
	for left := f.Bytes; left > 0; {
		piece := buffer[:min(left, int64(len(buffer)))]
		if _, err := io.ReadFull(body, piece); err != nil {
			return err
		}
		left -= int64(len(piece))
		sum := sha256.Sum256(piece)
		sent, err := s.core.PutObjectPart(ctx, s.config.Bucket, key, upload, len(parts)+1, bytes.NewReader(piece),
			int64(len(piece)), minio.PutObjectPartOptions{
				Sha256Hex: hex.EncodeToString(sum[:]), DisableContentSha256: true,
			})
		if err != nil {
			return s.failed(ctx, "send a part to S3", err)
		}
		parts = append(parts, minio.CompletePart{PartNumber: sent.PartNumber, ETag: sent.ETag})
	}
	_, err = s.core.CompleteMultipartUpload(ctx, s.config.Bucket, key, upload, parts, minio.PutObjectOptions{})
	if err != nil {
		return s.failed(ctx, "end an upload to S3", err)
	}
	return nil
}

// exact verifies a file while it is read. It withholds the last bytes until the digest matches, so a wrong file is never
// sent completely, even to a receiver that does not verify it.
type exact struct {
	from io.Reader
	sum  hash.Hash
	file File
	left int64
	err  error // why it ended early
}

// Read implements io.Reader.
func (e *exact) Read(p []byte) (int, error) {
	switch {
	case e.err != nil:
		return 0, e.err
	case e.left == 0:
		return 0, io.EOF
	case int64(len(p)) > e.left:
		p = p[:e.left]
	}
	n, err := e.from.Read(p)
	e.sum.Write(p[:n])
	e.left -= int64(n)
	switch {
	case e.left == 0:
		if e.err = e.compare(); e.err != nil {
			return 0, e.err
		}
	case errors.Is(err, io.EOF):
		e.err = fmt.Errorf("%w: %d bytes were named, and %d came", ErrMismatch, e.file.Bytes, e.file.Bytes-e.left)
	case err != nil:
		e.err = err
	}
	return n, e.err
}

// compare compares the digest, and that nothing follows.
func (e *exact) compare() error {
	if got := Digest(hex.EncodeToString(e.sum.Sum(nil))); got != e.file.Digest {
		return fmt.Errorf("%w: their digest is %s", ErrMismatch, got)
	}
	more, err := io.ReadFull(e.from, make([]byte, 1))
	switch {
	case more > 0:
		return fmt.Errorf("%w: more than the %d bytes that were named came", ErrMismatch, e.file.Bytes)
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// probeEvery is the least time between two looks whether a store that did not answer does so now.
const probeEvery = 5 * time.Second

// Ready implements Backend: it tries the store until it has answered, and again when it did not answer.
func (s *S3) Ready(ctx context.Context) error {
	if s.up.Load() {
		return nil
	}
	s.probe.Lock()
	defer s.probe.Unlock()
	if s.up.Load() {
		return nil
	}
	if s.probe.err != nil && time.Since(s.probe.at) < probeEvery {
		return s.probe.err
	}
	brief, cancel := short(ctx)
	defer cancel()
	direct, err := s.try(brief)
	if s.probe.at, s.probe.err = time.Now(), err; err != nil {
		return err
	}
	s.direct.Store(direct)
	s.up.Store(true)
	return nil
}

// try writes a small file, and reports whether the store refuses bytes that are not those of the checksum.
func (s *S3) try(ctx context.Context) (direct bool, err error) {
	const text = "written by a Sovereign server to see whether it can\n"
	f := File{DigestOf([]byte(text)), int64(len(text))}
	key := s.key("probe", f.Digest)
	if err := s.putWhole(ctx, key, f, strings.NewReader(text)); err != nil {
		return false, err
	}
	to, err := s.signedPut(ctx, key, f)
	if err != nil {
		return false, err
	}
	status, code, err := s.send(ctx, to, f.Bytes, strings.NewReader(strings.ToUpper(text)))
	switch {
	case err != nil:
		return false, s.failed(ctx, "send to S3", err)
	case status >= http.StatusInternalServerError:
		return false, s.failed(ctx, "send to S3", fmt.Errorf("it answers %d %s", status, code))
	case status != http.StatusBadRequest:
		return false, nil
	}
	_, err = s.Size(ctx, "probe", f.Digest)
	if errors.Is(err, ErrMissing) { // it refused the bytes, and keeps them
		return false, nil
	}
	return err == nil, err
}
