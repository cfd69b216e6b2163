package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"sovereign/internal/base/fault"
)

// wrapUnavailable turns an unreachable database into a refusal that a caller may see and retry. Other errors are
// returned as they are.
func wrapUnavailable(err error) error {
	if err == nil || errors.As(err, new(*fault.Fault)) || !unavailable(err) {
		return err
	}
	return fault.Unavailable.Because(err, "the database is not available").In(time.Second)
}

// unavailable reports whether err means that the database cannot serve now, as opposed to a statement that it
// refuses.
func unavailable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		class := pg.Code[:min(2, len(pg.Code))]
		return class == "08" || class == "53" || class == "58" || strings.HasPrefix(pg.Code, "57P")
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		switch lite.Code() & 0xff {
		case lib.SQLITE_BUSY, lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY:
			return true
		}
		return false
	}
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, new(*pgconn.ConnectError)): // also one that took longer than a connection may take
		return true
	case errors.Is(err, context.DeadlineExceeded):
		return false
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*net.OpError))
}

// isSerializationFailure reports whether a transaction was rolled back only because of a concurrent one, or because it
// was idle for too long.
func isSerializationFailure(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "25P03")
}

// IsDataError reports whether the engine refuses the data itself, so that no retry can succeed.
func IsDataError(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		class := pg.Code[:min(2, len(pg.Code))]
		return class == "22" || class == "23" || class == "54"
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		switch lite.Code() & 0xff {
		case lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH, lib.SQLITE_TOOBIG:
			return true
		}
	}
	return false
}

// Duplicate reports whether err is a violation of a unique index.
func Duplicate(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "23505"
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return lite.Code() == lib.SQLITE_CONSTRAINT_UNIQUE || lite.Code() == lib.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	return false
}
