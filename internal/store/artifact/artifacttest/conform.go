// Package artifacttest holds every backend of artifacts against one suite, and has an S3 that fails as tests want.
package artifacttest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
)

// Two workspaces of tests.
const (
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
)

func named(text string) artifact.File {
	return artifact.File{Digest: artifact.DigestOf([]byte(text)), Bytes: int64(len(text))}
}

func read(t *testing.T, b artifact.Backend, ws tenant.ID, d artifact.Digest) (string, error) {
	t.Helper()
	from, err := b.Open(t.Context(), ws, d)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	all, err := io.ReadAll(from)
	return string(all), err
}

// Conform is what every backend keeps.
func Conform(t *testing.T, b artifact.Backend) {
	t.Helper()
	if err := b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"short": "some weights", "empty": "", "long": strings.Repeat("weights ", 1<<18),
	} {
		t.Run(name, func(t *testing.T) {
			conform(t, b, text)
		})
	}
	t.Run("a worker's own transfers", func(t *testing.T) { transfers(t, b) })
}

func conform(t *testing.T, b artifact.Backend, text string) {
	t.Helper()
	ctx := t.Context()
	f := named(text)
	absent := func(when string) {
		t.Helper()
		if size, err := b.Size(ctx, mine, f.Digest); !errors.Is(err, artifact.ErrMissing) {
			t.Errorf("%s: %d %v", when, size, err)
		}
		if _, err := b.Open(ctx, mine, f.Digest); !errors.Is(err, artifact.ErrMissing) {
			t.Errorf("%s: %v", when, err)
		}
	}
	absent("before it is stored")
	wrong := map[string]string{"more": text + "!"}
	if text != "" {
		wrong["none"], wrong["fewer"], wrong["others"] = "", text[:len(text)/2], strings.ToUpper(text)
	}
	for name, sent := range wrong {
		if err := b.Put(ctx, mine, f, strings.NewReader(sent)); !errors.Is(err, artifact.ErrMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("the worker was killed")
	cut := io.MultiReader(strings.NewReader(text[:len(text)/2]), iotest.ErrReader(broken))
	if err := b.Put(ctx, mine, f, cut); !errors.Is(err, broken) {
		t.Errorf("broken off: %v", err)
	}
	absent("something of a refused file is kept")
	var group sync.WaitGroup
	for range 4 { // at once, and again
		group.Go(func() {
			if err := b.Put(ctx, mine, f, strings.NewReader(text)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := b.Put(ctx, mine, f, strings.NewReader(text+"?")); !errors.Is(err, artifact.ErrMismatch) {
		t.Errorf("other bytes of a stored file: %v", err)
	}
	if size, err := b.Size(ctx, mine, f.Digest); err != nil || size != f.Bytes {
		t.Errorf("%d %v", size, err)
	}
	if got, err := read(t, b, mine, f.Digest); err != nil || got != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := b.Open(ctx, theirs, f.Digest); !errors.Is(err, artifact.ErrMissing) {
		t.Errorf("another workspace: %v", err)
	}
	for range 2 {
		if err := b.Delete(ctx, mine, f.Digest); err != nil {
			t.Error(err)
		}
	}
	absent("deleted")
}

// transfers is what a worker does with the addresses that it gets. Without one, the server passes the bytes on.
func transfers(t *testing.T, b artifact.Backend) {
	t.Helper()
	ctx := t.Context()
	f, other := named("sent by a worker"), "SENT BY A WORKER"
	to, err := b.Upload(ctx, mine, f)
	if err != nil {
		t.Fatal(err)
	}
	if to.URL == "" {
		return
	}
	for name, try := range map[string]func() int{
		"other bytes": func() int { return do(t, http.MethodPut, to, other, nil) },
		"more":        func() int { return do(t, http.MethodPut, to, other+"!", nil) },
		"another checksum": func() int {
			return do(t, http.MethodPut, to, other, map[string]string{"X-Amz-Checksum-Sha256": checksum(other)})
		},
		"no checksum": func() int {
			return do(t, http.MethodPut, to, other, map[string]string{"X-Amz-Checksum-Sha256": ""})
		},
		"a read": func() int { return do(t, http.MethodGet, to, "", nil) },
		"another key": func() int {
			return do(t, http.MethodPut, artifact.Transfer{
				URL: strings.Replace(to.URL, string(f.Digest), string(named(other).Digest), 1), Headers: to.Headers,
			}, other, nil)
		},
	} {
		if status := try(); status < 400 || status >= 500 {
			t.Errorf("%s: %d", name, status)
		}
	}
	if _, err := b.Size(ctx, mine, f.Digest); !errors.Is(err, artifact.ErrMissing) {
		t.Errorf("something of a refused file is kept: %v", err)
	}
	for range 2 {
		if status := do(t, http.MethodPut, to, "sent by a worker", nil); status != http.StatusOK {
			t.Fatalf("the right bytes: %d", status)
		}
	}
	if size, err := b.Size(ctx, mine, f.Digest); err != nil || size != f.Bytes {
		t.Errorf("%d %v", size, err)
	}
	from, err := b.Download(ctx, mine, f)
	if err != nil {
		t.Fatal(err)
	}
	if status := do(t, http.MethodGet, from, "", nil); status != http.StatusOK {
		t.Errorf("a read: %d", status)
	}
	if status := do(t, http.MethodDelete, from, "", nil); status < 400 {
		t.Errorf("a deletion with the address of a read: %d", status)
	}
}

// do makes the request of a transfer, with some headers changed.
func do(t *testing.T, method string, to artifact.Transfer, body string, changed map[string]string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, to.URL, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range to.Headers {
		request.Header.Set(name, value)
	}
	for name, value := range changed {
		request.Header.Set(name, value)
		if value == "" {
			request.Header.Del(name)
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
