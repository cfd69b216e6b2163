// Package page serves the dashboard's page, which is built from web/ and embedded in the binary.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/module"
)

//go:embed all:dist
var built embed.FS

// The policy allows what the server itself sends, and nothing else: no inline script or style, no foreign picture, no
// text that becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// headers stand on every answer of the page.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"Permissions-Policy":           "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}

// The paths of the page. Files have the digest of all files in theirs, so that a browser may keep them for good.
const (
	root   = "/dashboard"
	assets = root + "/_/"
)

// notPages are the first segments below /dashboard that are never the page: its API, and what other servers call.
var notPages = []string{"api", "v1", "webhooks"}

// Module serves the page.
func Module() module.Module {
	s := &server{load: sync.OnceValues(func() (*site, error) { return load(built) })}
	return module.Module{Name: "page", Routes: []api.Route{
		api.HTML(root, s.serve, "The dashboard"),
		api.HTML(root+"/{path...}", s.serve, "The dashboard: its files, and index.html for every view"),
	}}
}

// A site is the built page, ready to be sent.
type site struct {
	index file
	files map[string]file // by path below /dashboard/_/<digest>/
}

type file struct {
	kind           string
	plain, gzipped []byte
}

// load reads the built page, and puts the digest of its files into index.html.
func load(from fs.FS) (*site, error) {
	contents, digest := map[string][]byte{}, sha256.New()
	err := fs.WalkDir(from, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		_, _ = fmt.Fprintf(digest, "%s\x00%d\x00", name, len(text)) // in the order of their names
		digest.Write(text)
		contents[strings.TrimPrefix(name, "dist/")] = text
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the built page: %w", err)
	}
	index, ok := contents["index.html"]
	if !ok {
		return nil, errors.New("the built page has no index.html")
	}
	delete(contents, "index.html")
	folder := hex.EncodeToString(digest.Sum(nil))[:16]
	s := &site{files: map[string]file{}}
	if s.index, err = newFile(
		"index.html", bytes.ReplaceAll(index, []byte(`"./`), []byte(`"`+assets+folder+"/")),
	); err != nil {
		return nil, err
	}
	for name, text := range contents {
		if s.files[folder+"/"+name], err = newFile(name, text); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// kinds are the media types of what a build makes.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8",
}

func newFile(name string, text []byte) (file, error) {
	kind, ok := kinds[path.Ext(name)]
	if !ok {
		return file{}, fmt.Errorf("the built page has %s, whose media type is not known", name)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return file{}, err
	}
	if _, err := w.Write(text); err != nil {
		return file{}, err
	}
	if err := w.Close(); err != nil {
		return file{}, err
	}
	return file{kind: kind, plain: text, gzipped: packed.Bytes()}, nil
}

// A server sends the page. It is read and compressed at the first request.
type server struct{ load func() (*site, error) }

func (s *server) serve(w http.ResponseWriter, r *http.Request) error {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, root), "/"), "/")
	if slices.Contains(notPages, first) {
		return edge.NoPath(r.URL.Path, "")
	}
	site, err := s.load()
	if err != nil {
		return err
	}
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	name, isFile := strings.CutPrefix(r.URL.Path, assets)
	if !isFile {
		site.index.send(w, r)
		return nil
	}
	found, ok := site.files[name]
	if !ok { // such as one of an older release
		return edge.NoPath(r.URL.Path, "")
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	found.send(w, r)
	return nil
}

func (f file) send(w http.ResponseWriter, r *http.Request) {
	header, body := w.Header(), f.plain
	header.Set("Content-Type", f.kind)
	header.Set("Vary", "Accept-Encoding")
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		body = f.gzipped
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a browser that has gone has no use for an error
	}
}

// takesGzip reports whether an Accept-Encoding header names gzip with a weight above zero.
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		value, given := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
		q, err := strconv.ParseFloat(value, 64)
		return !given || err == nil && q > 0
	}
	return false
}
