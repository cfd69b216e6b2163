// Package secret wraps text that must not be printed. Logging, formatting and encoding it yields [redacted].
package secret

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

const redacted = "[redacted]"

// A Text is a secret. Only Reveal returns it, so that all uses can be found by that name. It holds a pointer, because
// fmt prints the unexported fields of a struct without calling their methods.
type Text struct{ value *string }

// New wraps s.
func New(s string) Text { return Text{value: &s} }

// Reveal returns the secret.
func (t Text) Reveal() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

// Empty reports whether the secret is empty.
func (t Text) Empty() bool { return t.Reveal() == "" }

// Equal reports whether two secrets are equal; == would compare pointers.
func (t Text) Equal(u Text) bool { return t.Reveal() == u.Reveal() }

// Resolve returns the secret that t says the place of: env:NAME is a variable of the environment, file:PATH a file. Any
// other text is the secret itself.
func (t Text) Resolve() (Text, error) {
	value := t.Reveal()
	if name, ok := strings.CutPrefix(value, "env:"); ok {
		if value = os.Getenv(name); value == "" {
			return Text{}, fmt.Errorf("the environment has no %s", name)
		}
	} else if path, ok := strings.CutPrefix(value, "file:"); ok {
		content, err := os.ReadFile(path) //nolint:gosec // the operator's own path
		if err != nil {
			return Text{}, err
		}
		if value = strings.TrimSpace(string(content)); value == "" {
			return Text{}, fmt.Errorf("%s is empty", path)
		}
	}
	return New(value), nil
}

// String returns [redacted], as every other way of printing does.
func (t Text) String() string { return redacted }

// Format implements fmt.Formatter, so that no verb reaches the field.
func (t Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue implements slog.LogValuer.
func (t Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler for JSON and YAML.
func (t Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText sets the secret, for configuration files.
func (t *Text) UnmarshalText(text []byte) error {
	*t = New(string(text))
	return nil
}
