// Package clock defines the time type used in Go, in SQL and on the wire: whole microseconds, UTC.
package clock

import (
	"errors"
	"time"
)

// A Time is microseconds since 1970, UTC. In SQL it is a BIGINT; in JSON it is RFC 3339 with milliseconds.
type Time int64

// wire is the layout of RFC 3339 in UTC with exactly three decimals.
const wire = "2006-01-02T15:04:05.000Z"

// Now returns the current time.
func Now() Time { return Of(time.Now()) }

// Of converts t, truncated to microseconds.
func Of(t time.Time) Time { return Time(t.UnixMicro()) }

// Std returns t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMicro(int64(t)).UTC() }

// Add returns t + d.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Microseconds()) }

// Sub returns t - u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Microsecond }

// String returns the wire format of t.
func (t Time) String() string { return t.Std().Format(wire) }

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText accepts any RFC 3339 time.
func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return errors.New("is not an RFC 3339 time")
	}
	*t = Of(parsed)
	return nil
}
