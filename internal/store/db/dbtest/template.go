package dbtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
)

// A template is a set of databases that is migrated once per process and engine, and then copied: migrating takes far
// longer than most tests.
type template struct {
	opens    []opener
	files    func() (map[string][]byte, error) // SQLite's
	database func() (string, error)            // PostgreSQL's
}

type opener = func(ctx context.Context, folder string, url secret.Text) (*db.DB, error)

var (
	core = newTemplate("template_core", db.Open)
	logs = newTemplate("template_logs", db.OpenLogs)
	both = newTemplate("template_both", db.Open, db.OpenLogs)
)

func newTemplate(name string, opens ...opener) *template {
	t := &template{opens: opens}
	t.files = sync.OnceValues(t.makeFiles)
	t.database = sync.OnceValues(func() (string, error) { return name, t.makeDatabase(name) })
	return t
}

func (t *template) makeFiles() (files map[string][]byte, err error) {
	folder, err := os.MkdirTemp("", "sovereign-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := t.migrate(folder, secret.Text{}); err != nil {
		return nil, err
	}
	names, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	files = map[string][]byte{}
	for _, f := range names {
		if files[f.Name()], err = os.ReadFile(filepath.Join(folder, f.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (t *template) makeDatabase(name string) error {
	s, err := server()
	if err != nil {
		return err
	}
	return s.makeTemplate(name, t)
}

// migrate creates the schemas, and leaves nothing open.
func (t *template) migrate(folder string, url secret.Text) error {
	ctx := context.Background()
	for _, open := range t.opens {
		d, err := open(ctx, folder, url)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Migrate(ctx), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// each runs test once per engine, with the folder and the URL of a copy of the template.
func (t *template) each(all *testing.T, test func(one *testing.T, folder string, url secret.Text)) {
	all.Helper()
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		all.Run(string(engine), func(one *testing.T) {
			folder, url := t.copy(one, engine)
			test(one, folder, url)
		})
	}
}

// copy copies the template for the length of the test.
func (t *template) copy(one testing.TB, engine db.Engine) (folder string, url secret.Text) {
	one.Helper()
	folder = one.TempDir()
	if engine == db.Postgres {
		name, err := t.database()
		if err != nil {
			one.Fatal(err)
		}
		s, err := server()
		if err != nil {
			one.Fatal(err)
		}
		return folder, s.database(one, name)
	}
	files, err := t.files()
	if err != nil {
		one.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			one.Fatal(err)
		}
	}
	return folder, secret.Text{}
}

// open opens the databases of a copy.
func (t *template) open(one testing.TB, folder string, url secret.Text) (all []*db.DB) {
	one.Helper()
	for _, open := range t.opens {
		all = append(all, opened(one, open, folder, url))
	}
	return all
}
