// Package dbtest runs a store's tests on both engines: a SQLite file, and a real PostgreSQL server.
package dbtest

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
)

// Each runs test once per engine, on a fresh, migrated database.
func Each(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	core.each(t, func(t *testing.T, all []*db.DB) { test(t, all[0]) })
}

// EachWithLogs is Each with the database of logs beside the core one.
func EachWithLogs(t *testing.T, test func(t *testing.T, core, logs *db.DB)) {
	t.Helper()
	both.each(t, func(t *testing.T, all []*db.DB) { test(t, all[0], all[1]) })
}

// EachURL runs test once per engine, with an empty folder and the URL of an empty database (empty for SQLite), for
// tests that open it themselves, or hand it to a server.
func EachURL(t *testing.T, test func(t *testing.T, folder string, url secret.Text)) {
	t.Helper()
	t.Run(string(db.SQLite), func(t *testing.T) {
		test(t, t.TempDir(), secret.Text{})
	})
	t.Run(string(db.Postgres), func(t *testing.T) {
		test(t, t.TempDir(), Postgres(t))
	})
}

// Open opens a database for the length of the test.
func Open(t testing.TB, folder string, url secret.Text) *db.DB {
	t.Helper()
	return opened(t, db.Open, folder, url)
}

func opened(t testing.TB, open opener, folder string, url secret.Text) *db.DB {
	t.Helper()
	d, err := open(t.Context(), folder, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

var databases atomic.Int64

// Postgres is the URL of an empty database of its own on this process's PostgreSQL server.
func Postgres(t testing.TB) secret.Text {
	t.Helper()
	s, err := server()
	if err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	return s.database(t, "template1")
}

// database is one of the test's own, made as a copy of another.
func (s *Server) database(t testing.TB, template string) secret.Text {
	t.Helper()
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1)) // other processes may share the server
	must := func(statement string) {
		if err := s.run(statement); err != nil {
			t.Fatal(err)
		}
	}
	must("CREATE DATABASE " + name + " TEMPLATE " + template)
	t.Cleanup(func() { must("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") })
	return secret.New(s.url(name))
}

func (s *Server) run(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
