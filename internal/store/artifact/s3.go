package artifact

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
)

// An S3Config is a bucket of an S3-compatible store.
type S3Config struct {
	Endpoint  string // such as https://s3.eu-central-1.amazonaws.com
	Bucket    string
	Prefix    string // of every key; without slashes at its ends
	Region    string
	AccessKey string
	SecretKey secret.Text
	PathStyle bool          // the bucket is in the path of URLs, not in their host
	AllowHTTP bool          // also to hosts that are not this machine
	Lifetime  time.Duration // of the addresses that workers get
	PartSize  int64         // what is larger is sent in parts of this size; 0 for as late as S3 allows
}

// Bounds of the addresses that workers get. One that outlives the day for which an unused file is kept could leave
// bytes that no row names.
const (
	minLifetime = time.Minute
	maxLifetime = 12 * time.Hour
)

// Check reports what is wrong with a configuration, with the key at fault.
func (c *S3Config) Check() (key string, err error) {
	at, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" ||
		strings.Trim(at.Path, "/") != "" ||
		at.RawQuery != "" || at.User != nil:
		return "endpoint", errors.New("is not a URL such as https://s3.eu-central-1.amazonaws.com")
	case at.Scheme == "http" && !c.AllowHTTP && !loopback(at.Hostname()):
		return "endpoint", errors.New("must be https: with http, weights and addresses can be read on the way; " +
			"allow_http says that the network is yours")
	case c.Bucket == "":
		return "bucket", errors.New("must be set")
	case c.Prefix != "" && path.Clean(c.Prefix) != c.Prefix || strings.HasPrefix(c.Prefix, ".."):
		return "prefix", errors.New("must be a plain path such as team/training")
	case c.AccessKey == "":
		return "access_key", errors.New("must be set")
	case c.SecretKey.Empty():
		return "secret_key", errors.New("must be set")
	case c.Lifetime < minLifetime || c.Lifetime > maxLifetime:
		return "url_lifetime", fmt.Errorf("must be from %s to %s", minLifetime, maxLifetime)
	}
	return "", nil
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// An S3 keeps files in a bucket, as <prefix>/<workspace>/<digest>. Workers send and fetch bytes by themselves, with
// addresses that are signed for one file: the signature binds its length and its SHA-256, and ends after some minutes.
type S3 struct {
	config S3Config
	core   *minio.Core
	http   *http.Client
	single int64 // the most that one request may send
	part   int64 // of a file that is sent in parts, at least

	up     atomic.Bool // it answered last time
	direct atomic.Bool // it compares checksums, so that workers may send bytes by themselves
	probe  struct {
		sync.Mutex
		at  time.Time
		err error
	}
	read struct { // files that were read to the end, by key, with their ETags
		sync.Mutex
		etags map[string]string
	}
}

// Sizes of S3's requests.
const (
	maxSingle = 5 << 30
	minPart   = 64 << 20
	maxParts  = 10_000
)

// ErrUnreachable says that the store does not answer, or not as S3 does.
var ErrUnreachable = errors.New("the store of artifacts does not answer")

// NewS3 returns the files of a bucket. It sends nothing: Ready does.
func NewS3(c S3Config) (*S3, error) {
	if key, err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s %w", key, err)
	}
	at, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("parse the endpoint: %w", err)
	}
	lookup := minio.BucketLookupDNS
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute, IdleConnTimeout: time.Minute,
		MaxIdleConnsPerHost: 16, DisableCompression: true,
	}
	core, err := minio.NewCore(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(c.AccessKey, c.SecretKey.Reveal(), ""), Secure: at.Scheme == "https",
		Region: cmp.Or(c.Region, "us-east-1"), BucketLookup: lookup, Transport: transport, MaxRetries: 3,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare S3: %w", err)
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &S3{
		config: c, core: core, http: &http.Client{Transport: transport, CheckRedirect: refuse},
		single: cmp.Or(c.PartSize, maxSingle), part: cmp.Or(c.PartSize, minPart),
	}, nil
}

func (s *S3) key(ws tenant.ID, d Digest) string {
	return path.Join(s.config.Prefix, string(ws), string(d))
}

// short bounds a call that carries no file.
func short(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 30*time.Second)
}

// failed notes and names what a call has come to.
func (s *S3) failed(ctx context.Context, what string, err error) error {
	var at *url.Error
	if errors.As(err, &at) { // its URL may be signed
		err = at.Err
	}
	if response := minio.ToErrorResponse(err); response.Code == minio.NoSuchKey || response.Code == "NotFound" {
		return ErrMissing
	}
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, cause)
	}
	s.up.Store(false)
	return fmt.Errorf("%s: %w: %w", what, ErrUnreachable, err)
}

// Name implements Backend.
func (s *S3) Name() (string, error) {
	return s.config.Endpoint + "/" + s.config.Bucket + "/" + s.config.Prefix, nil
}

// Open implements Backend.
func (s *S3) Open(ctx context.Context, ws tenant.ID, d Digest) (io.ReadCloser, error) {
	from, _, _, err := s.core.GetObject(ctx, s.config.Bucket, s.key(ws, d), minio.GetObjectOptions{})
	if err != nil {
		return nil, s.failed(ctx, "read from S3", err)
	}
	return from, nil
}

// Size implements Backend. A file whose checksum is another one counts as missing.
func (s *S3) Size(ctx context.Context, ws tenant.ID, d Digest) (int64, error) {
	key := s.key(ws, d)
	brief, cancel := short(ctx)
	defer cancel()
	info, err := s.core.StatObject(brief, s.config.Bucket, key, minio.StatObjectOptions{Checksum: true})
	if err != nil {
		return 0, s.failed(ctx, "look into S3", err)
	}
	switch {
	case info.ChecksumSHA256 == checksum(d):
	case strings.Contains(info.ETag, "-"): // in parts: only this server sends them, and it compares before the last step
	case info.ChecksumSHA256 != "":
		return 0, ErrMissing
	default: // the store keeps no checksums
		if err := s.readOnce(ctx, ws, d, info.ETag); err != nil {
			return 0, err
		}
	}
	return info.Size, nil
}

// maxRead bounds the files that are remembered as read.
const maxRead = 10_000

// readOnce reads a file to its end, unless it was read already, and fails with ErrMissing if it is another one.
func (s *S3) readOnce(ctx context.Context, ws tenant.ID, d Digest, etag string) error {
	key := s.key(ws, d)
	s.read.Lock()
	known := etag != "" && s.read.etags[key] == etag
	s.read.Unlock()
	if known {
		return nil
	}
	from, err := s.Open(ctx, ws, d)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was read
	_, err = io.Copy(io.Discard, verify(from, d))
	switch {
	case errors.Is(err, ErrMismatch):
		return ErrMissing
	case err != nil:
		return s.failed(ctx, "read from S3", err)
	}
	s.read.Lock()
	defer s.read.Unlock()
	if s.read.etags == nil || len(s.read.etags) >= maxRead {
		s.read.etags = map[string]string{}
	}
	s.read.etags[key] = etag
	return nil
}

// checksum returns a digest as S3 writes it.
func checksum(d Digest) string {
	sum, _ := hex.DecodeString(string(d)) // a valid digest is hexadecimal
	return base64.StdEncoding.EncodeToString(sum)
}

// Delete implements Backend.
func (s *S3) Delete(ctx context.Context, ws tenant.ID, d Digest) error {
	brief, cancel := short(ctx)
	defer cancel()
	err := s.core.RemoveObject(brief, s.config.Bucket, s.key(ws, d), minio.RemoveObjectOptions{})
	if err == nil {
		return nil
	}
	if err = s.failed(ctx, "delete from S3", err); errors.Is(err, ErrMissing) {
		return nil
	}
	return err
}

// Upload implements Backend. Without checksums in the store, and above what one request may send, the server passes the
// bytes on.
func (s *S3) Upload(ctx context.Context, ws tenant.ID, f File) (Transfer, error) {
	if err := s.Ready(ctx); err != nil {
		return Transfer{}, err
	}
	if !s.direct.Load() || f.Bytes > s.single {
		return Transfer{}, nil
	}
	return s.signedPut(ctx, s.key(ws, f.Digest), f)
}

// signedPut returns where anyone can send one file, and no other.
func (s *S3) signedPut(ctx context.Context, key string, f File) (Transfer, error) {
	header := http.Header{}
	header.Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	header.Set("X-Amz-Checksum-Sha256", checksum(f.Digest))
	at, err := s.core.PresignHeader(ctx, http.MethodPut, s.config.Bucket, key, s.config.Lifetime, nil, header)
	if err != nil {
		return Transfer{}, fmt.Errorf("sign an upload: %w", err)
	}
	to := Transfer{URL: at.String(), Headers: map[string]string{}}
	for name := range header {
		to.Headers[name] = header.Get(name)
	}
	return to, nil
}

// Download implements Backend.
func (s *S3) Download(ctx context.Context, ws tenant.ID, f File) (Transfer, error) {
	at, err := s.core.PresignedGetObject(ctx, s.config.Bucket, s.key(ws, f.Digest), s.config.Lifetime, nil)
	if err != nil {
		return Transfer{}, fmt.Errorf("sign a download: %w", err)
	}
	return Transfer{URL: at.String()}, nil
}
