package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"

	"sovereign/internal/base/secret"
)

// sharedURL names the environment variable with the URL of a PostgreSQL server for all packages of one test run, which
// scripts/unit starts with the command in dbtest/serve. Without it each test process starts a server of its own.
const sharedURL = "SOVEREIGN_TEST_POSTGRES"

// shared is the server of the whole test run, or nil if there is none.
func shared() (*Server, error) {
	text := os.Getenv(sharedURL)
	if text == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	at, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sharedURL, err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sharedURL, err)
	}
	return &Server{port: port}, nil
}

// PID is the process of a server that was started.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// makeTemplate makes a database with the schemas of t, unless another process of the test run has made it. It gets its
// name only when it is complete.
func (s *Server) makeTemplate(name string, t *template) (err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }() // which ends the lock
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtext($1))`, name); err != nil {
		return err
	}
	var there bool
	if err := conn.QueryRow(
		ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name,
	).Scan(&there); err != nil || there {
		return err
	}
	draft := name + "_draft"
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + draft, "CREATE DATABASE " + draft} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if err := t.migrate("", secret.New(s.url(draft))); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+draft+" RENAME TO "+name)
	return err
}
