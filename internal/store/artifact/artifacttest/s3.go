package artifacttest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/artifact"
)

// Bucket is the bucket of an S3 of tests.
const Bucket = "training"

// The credentials of an S3 of tests.
const (
	accessKey = "tester"
	secretKey = "tester-secret"
)

// A Memory is as much of S3 as a backend uses, in memory. It checks the signatures of addresses, and takes those of
// requests for right: a real S3 is in tools/s3.
type Memory struct {
	Blind bool // it keeps no checksums, as old stores do

	lock    sync.Mutex
	objects map[string]object
	uploads map[string]map[int][]byte
	made    int
}

type object struct {
	bytes []byte
	etag  string
	sum   string
}

// Keys returns the keys of all objects, without those that try the store, and the uploads that have not ended.
func (m *Memory) Keys() (keys []string, unfinished int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for key := range m.objects {
		if !strings.Contains(key, "probe/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, len(m.uploads)
}

// Change replaces the bytes of an object behind everyone's back.
func (m *Memory) Change(key string, with []byte) {
	m.lock.Lock()
	defer m.lock.Unlock()
	o := m.objects[key]
	o.bytes = with
	m.objects[key] = o
}

// Config returns how a backend reaches an S3 of tests.
func Config(t *testing.T, endpoint string) artifact.S3Config {
	t.Helper()
	return artifact.S3Config{
		Endpoint: endpoint, Bucket: Bucket, Prefix: "a/b", AccessKey: accessKey, SecretKey: secret.New(secretKey),
		PathStyle: true, Lifetime: 10 * time.Minute,
	}
}

// ServeHTTP implements http.Handler.
func (m *Memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || int64(len(body)) != max(0, r.ContentLength) {
		return // the sender broke off
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if problem := signed(r); problem != "" {
		answer(w, http.StatusForbidden, "AccessDenied", problem)
		return
	}
	if bucket != Bucket {
		answer(w, http.StatusNotFound, "NoSuchBucket", "")
		return
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.objects == nil {
		m.objects, m.uploads = map[string]object{}, map[string]map[int][]byte{}
	}
	query := r.URL.Query()
	switch upload := query.Get("uploadId"); {
	case upload != "" || query.Has("uploads"):
		m.parts(w, r, key, upload, body)
	case r.Method == http.MethodPut:
		m.put(w, r, key, body)
	case r.Method == http.MethodDelete:
		delete(m.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		m.get(w, r, key)
	}
}

// signed reports what is wrong with the signature of a request.
func signed(r *http.Request) string {
	query := r.URL.Query()
	names := query.Get("X-Amz-SignedHeaders")
	if names == "" {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
			return "no signature"
		}
		return ""
	}
	at, err := time.Parse("20060102T150405Z", query.Get("X-Amz-Date"))
	lifetime, _ := strconv.Atoi(query.Get("X-Amz-Expires"))
	if err != nil || time.Since(at) > time.Duration(lifetime)*time.Second {
		return "it has expired"
	}
	sent := query.Get("X-Amz-Signature")
	query.Del("X-Amz-Signature")
	var canonical strings.Builder
	canonical.WriteString(r.Method + "\n" + r.URL.EscapedPath() + "\n" +
		strings.ReplaceAll(query.Encode(), "+", "%20") + "\n")
	for _, name := range strings.Split(names, ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		canonical.WriteString(name + ":" + value + "\n")
	}
	sum := sha256.Sum256([]byte(canonical.String() + "\n" + names + "\nUNSIGNED-PAYLOAD"))
	_, scope, _ := strings.Cut(query.Get("X-Amz-Credential"), "/")
	key := []byte("AWS4" + secretKey)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	text := "AWS4-HMAC-SHA256\n" + query.Get("X-Amz-Date") + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
	if hex.EncodeToString(mac(key, text)) != sent {
		return "the signature is of another request"
	}
	return ""
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func (m *Memory) put(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	sum := sha256.Sum256(body)
	want := r.Header.Get("X-Amz-Checksum-Sha256")
	if m.Blind {
		want = ""
	} else if want != checksum(string(body)) {
		answer(w, http.StatusBadRequest, "BadDigest", "")
		return
	}
	m.objects[key] = object{body, hex.EncodeToString(sum[:16]), want}
	w.Header().Set("ETag", m.objects[key].etag)
}

func (m *Memory) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := m.objects[key]
	if !ok {
		answer(w, http.StatusNotFound, "NoSuchKey", "")
		return
	}
	if o.sum != "" {
		w.Header().Set("X-Amz-Checksum-Sha256", o.sum)
	}
	w.Header().Set("ETag", `"`+o.etag+`"`)
	w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", strconv.Itoa(len(o.bytes)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(o.bytes)
	}
}

// parts serves uploads in parts.
func (m *Memory) parts(w http.ResponseWriter, r *http.Request, key, upload string, body []byte) {
	parts, known := m.uploads[upload]
	switch {
	case r.URL.Query().Has("uploads"):
		m.made++
		upload = strconv.Itoa(m.made)
		m.uploads[upload] = map[int][]byte{}
		_, _ = fmt.Fprintf(
			w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", upload,
		)
	case !known:
		answer(w, http.StatusNotFound, "NoSuchUpload", "")
	case r.Method == http.MethodPut:
		number, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
		parts[number] = body
		w.Header().Set("ETag", fmt.Sprintf(`"part-%d"`, number))
	case r.Method == http.MethodDelete:
		delete(m.uploads, upload)
		w.WriteHeader(http.StatusNoContent)
	case strings.Count(string(body), "<PartNumber>") != len(parts):
		answer(w, http.StatusBadRequest, "InvalidPart", "")
	default:
		var whole []byte
		for number := 1; number <= len(parts); number++ {
			whole = append(whole, parts[number]...)
		}
		m.objects[key] = object{bytes: whole, etag: fmt.Sprintf("parts-%d", len(parts))}
		delete(m.uploads, upload)
		_, _ = fmt.Fprintf(
			w, "<CompleteMultipartUploadResult><Bucket>%s</Bucket></CompleteMultipartUploadResult>", Bucket,
		)
	}
}

// checksum is the SHA-256 of bytes as S3 writes it.
func checksum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// answer refuses a request as S3 does.
func answer(w http.ResponseWriter, status int, code, message string) {
	text, _ := xml.Marshal(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}{Code: code, Message: message})
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
