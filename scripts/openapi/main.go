// Command openapi writes the OpenAPI documents of the server into a folder: v1.json, the public API, and dashboard.json, what
// the dashboard calls beside it. The types of the page are made from them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sovereign/internal/app"
)

func main() {
	if len(os.Args) != 2 {
		_, _ = fmt.Fprintln(os.Stderr, "usage: go run ./scripts/openapi FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "openapi: "+err.Error())
		os.Exit(1)
	}
}

func write(folder string) error {
	v1, dashboard, err := app.Documents(context.Background())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // it is for everybody who builds the page
		return err
	}
	for name, document := range map[string][]byte{"v1.json": v1, "dashboard.json": dashboard} {
		var readable bytes.Buffer
		if err := json.Indent(&readable, document, "", " "); err != nil {
			return err
		}
		readable.WriteByte('\n')
		if err := os.WriteFile(filepath.Join(folder, name), readable.Bytes(), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}
