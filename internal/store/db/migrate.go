package db

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql migrations/logs/*.sql
var migrations embed.FS

// ErrNewer reports that the database was made by a newer release than this binary.
var ErrNewer = errors.New("the database is newer than this binary")

// Migrate updates the schema to this binary's. Each step is one transaction: a kill in between leaves the completed
// steps, and the next start continues from there. A newer schema is refused and left untouched.
func (d *DB) Migrate(ctx context.Context) error {
	steps, err := d.provider()
	if err != nil {
		return err
	}
	have, want, err := d.schema(ctx, steps)
	if err != nil {
		return err
	}
	if have > want {
		return fmt.Errorf("%w: schema %d, and this release knows %d", ErrNewer, have, want)
	}
	if _, err := steps.Up(ctx); err != nil {
		return fmt.Errorf("migrate from schema %d to %d: %w", have, want, err)
	}
	return nil
}

// MigrateTo gives an empty database an older schema, so that a backup of that schema can be restored.
func (d *DB) MigrateTo(ctx context.Context, version int64) error {
	steps, err := d.provider()
	if err != nil {
		return err
	}
	if _, want, err := d.schema(ctx, steps); err != nil {
		return err
	} else if version > want {
		return fmt.Errorf("%w: schema %d, and this release knows %d", ErrNewer, version, want)
	}
	if _, err := steps.UpTo(ctx, version); err != nil {
		return fmt.Errorf("migrate to schema %d: %w", version, err)
	}
	return nil
}

// Schemas returns the schema version of the database, 0 for an empty one, and the newest that this binary knows.
func (d *DB) Schemas(ctx context.Context) (have, known int64, err error) {
	steps, err := d.provider()
	if err != nil {
		return 0, 0, err
	}
	return d.schema(ctx, steps)
}

func (d *DB) provider() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, d.migrationsDir)
	if err != nil {
		return nil, err
	}
	dialect := goose.DialectSQLite3
	if d.Engine == Postgres {
		dialect = goose.DialectPostgres
	}
	return goose.NewProvider(dialect, d.write, files, goose.WithDisableGlobalRegistry(true))
}

// schema reads the versions. It checks for the migrations' table first: goose would create it.
func (d *DB) schema(ctx context.Context, steps *goose.Provider) (have, want int64, err error) {
	sources := steps.ListSources()
	want = sources[len(sources)-1].Version
	looks := `SELECT COUNT(*) FROM sqlite_master WHERE name = 'goose_db_version'`
	if d.Engine == Postgres {
		looks = `SELECT COUNT(*) FROM pg_class
			WHERE relname = 'goose_db_version' AND relnamespace = current_schema()::regnamespace`
	}
	there, err := One[int](ctx, d.Across("the schema is everybody's"), looks)
	if err != nil {
		return 0, 0, fmt.Errorf("read the schema's version: %w", err)
	}
	if there == 0 {
		return 0, want, nil
	}
	have, want, err = steps.GetVersions(ctx)
	if err != nil {
		return 0, 0, wrapUnavailable(fmt.Errorf("read the schema's version: %w", err))
	}
	return have, want, nil
}
