package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
)

// Documents returns the OpenAPI documents of the public API and of the dashboard's own, from a server on an empty data
// folder that is gone afterwards. The page's types are made from them.
func Documents(ctx context.Context) (v1, dashboard []byte, err error) {
	folder, err := os.MkdirTemp("", "openapi")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	s := Storage{DataDir: filepath.Join(folder, "data")}
	if err := s.complete(); err != nil {
		return nil, nil, err
	}
	i, err := open(ctx, defaults(s), mayCreate, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, nil, err
	}
	i.start()       //nolint:contextcheck // it runs until close
	defer i.close() //nolint:contextcheck // what is given back does not depend on the caller
	if v1, err = i.document(ctx, "/openapi.json"); err != nil {
		return nil, nil, err
	}
	dashboard, err = i.document(ctx, "/dashboard/api/openapi.json")
	return v1, dashboard, err
}

// document asks the public router for a document.
func (i *instance) document(ctx context.Context, path string) ([]byte, error) {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	request.Host = "localhost"
	recorder := httptest.NewRecorder()
	i.routers.public.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %s", path, recorder.Code, recorder.Body)
	}
	return io.ReadAll(recorder.Body)
}
