package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"

	"sovereign/internal/base/secret"
)

const canary = "canary-7f3a"

// shows reports whether text holds the canary, as it is or encoded.
func shows(text string) bool {
	for _, form := range []string{
		canary, hex.EncodeToString([]byte(canary)), base64.StdEncoding.EncodeToString([]byte(canary)),
		fmt.Sprintf("%d", []byte(canary)), fmt.Sprintf("% x", canary),
	} {
		if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
			return true
		}
	}
	return false
}

// ways are all roads by which a value has ever reached a log, an error or a response.
func ways() map[string]func(any) string {
	all := map[string]func(any) string{
		"Sprint":   func(v any) string { return fmt.Sprint(v) },
		"Sprintln": func(v any) string { return fmt.Sprintln(v) },
		"a wrapped error": func(v any) string {
			return fmt.Errorf("outer: %w", errors.Join(errors.New("other"), fmt.Errorf("inner: %v", v))).Error()
		},
		"a panic's error": func(v any) (text string) {
			defer func() { text = fmt.Sprint(recover()) }()
			panic(fmt.Errorf("%+v", v))
		},
		"encoding/json": func(v any) string {
			text, err := stdjson.Marshal(v)
			return fmt.Sprint(string(text), err)
		},
		"json v2": func(v any) string {
			text, err := json.Marshal(v)
			return fmt.Sprint(string(text), err)
		},
		"yaml": func(v any) string {
			text, err := yaml.Marshal(v)
			return fmt.Sprint(string(text), err)
		},
		"slog text": func(v any) string {
			return logged(v, func(out *bytes.Buffer) slog.Handler { return slog.NewTextHandler(out, nil) })
		},
		"slog JSON": func(v any) string {
			return logged(v, func(out *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(out, nil) })
		},
	}
	formats := []string{"no verb for it"}
	for _, flags := range []string{"", "+", "#", " ", "-20", "020"} {
		for _, verb := range "vsqxXdtbcoOUeEfFgGpw!" {
			formats = append(formats, "%"+flags+string(verb))
		}
	}
	for _, format := range formats {
		all[format] = func(v any) string { return fmt.Sprintf(format, v) }
	}
	return all
}

func logged(v any, handler func(*bytes.Buffer) slog.Handler) string {
	var out bytes.Buffer
	log := slog.New(handler(&out))
	log.With("bound", v).WithGroup("group").Info("message", "value", v, slog.Group("inner", "value", v))
	return out.String()
}

func TestNoWayOfPrintingRevealsIt(t *testing.T) {
	type config struct {
		Name   string
		Key    secret.Text
		hidden secret.Text
		Next   *config
	}
	key := secret.New(canary)
	c := config{Name: "a name", Key: key, hidden: key, Next: &config{Key: key, hidden: key}}
	values := map[string]any{
		"itself": key, "pointer": &key, "struct": c, "struct pointer": &c, "slice": []secret.Text{key},
		"slice of pointers": []*secret.Text{&key}, "slice of structs": []config{c}, "array": [1]secret.Text{key}, "map": map[string]secret.Text{"k": key},
		"map key": map[secret.Text]int{key: 1}, "map of pointers": map[string]*secret.Text{"k": &key}, "any": []any{key, &key, c, &c},
	}
	for way, printed := range ways() {
		for kind, value := range values {
			if text := printed(value); shows(text) {
				t.Errorf("%s by %s: %s", kind, way, text)
			}
		}
	}
}

// Without this, a way that prints nothing at all would pass.
func TestEveryWayOfPrintingShowsOrdinaryText(t *testing.T) {
	for way, printed := range ways() {
		if !shows(printed(canary)) {
			t.Errorf("%s shows %q for a plain string", way, printed(canary))
		}
	}
}

func TestConfigurationsReadIt(t *testing.T) {
	type config struct{ Key secret.Text }
	for way, read := range map[string]func(*config) error{
		"encoding/json": func(c *config) error { return stdjson.Unmarshal([]byte(`{"Key":"`+canary+`"}`), c) },
		"json v2":       func(c *config) error { return json.Unmarshal([]byte(`{"Key":"`+canary+`"}`), c) },
		"yaml":          func(c *config) error { return yaml.Unmarshal([]byte("key: "+canary), c) },
	} {
		var c config
		if err := read(&c); err != nil || c.Key.Reveal() != canary || c.Key.Empty() {
			t.Errorf("%s: %q %v", way, c.Key.Reveal(), err)
		}
	}
	if !(secret.Text{}).Empty() || secret.New("").Reveal() != "" {
		t.Error("the zero secret is not empty")
	}
}

// fmt prints the unexported fields of a struct without asking their methods.
func TestASecretInAnUnexportedFieldIsNotPrinted(t *testing.T) {
	type holder struct{ inner struct{ text secret.Text } }
	var h holder
	h.inner.text = secret.New("canary-unexported")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if out := fmt.Sprintf(verb, h); strings.Contains(out, "canary") || strings.Contains(out, "63616e617279") {
			t.Errorf("%s prints %s", verb, out)
		}
	}
	if !h.inner.text.Equal(secret.New("canary-unexported")) || h.inner.text.Equal(secret.New("other")) || !(secret.Text{}).Equal(secret.New("")) {
		t.Error("Equal compares what is kept, not where")
	}
}
