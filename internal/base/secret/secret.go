// Package secret holds text that must not be printed: log it, format it or encode it, and [redacted] comes out.
package secret

import (
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// A Text is a secret. Only Reveal shows it, so that every place that does can be found by its name. It is a pointer
// inside, because fmt prints the unexported fields of a struct without asking their methods.
type Text struct{ value *string }

// New wraps s.
func New(s string) Text { return Text{value: &s} }

// Reveal is the secret itself.
func (t Text) Reveal() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

// Empty reports whether there is no secret.
func (t Text) Empty() bool { return t.Reveal() == "" }

// Equal reports whether two secrets are the same; == would compare where they are kept.
func (t Text) Equal(u Text) bool { return t.Reveal() == u.Reveal() }

// String, and every other way of printing, says [redacted].
func (t Text) String() string { return redacted }

// Format implements fmt.Formatter, so that no verb reaches the field.
func (t Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue implements slog.LogValuer.
func (t Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler for JSON and YAML.
func (t Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText takes the secret from a configuration.
func (t *Text) UnmarshalText(text []byte) error {
	*t = New(string(text))
	return nil
}
