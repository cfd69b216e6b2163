package app

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheDashboardIsConfiguredInSectionsOfTheFile(t *testing.T) {
	read := func(text string) (*Config, error) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		parsed, err := parse([]string{"serve", "--config", path}, io.Discard)
		if err != nil {
			return nil, err
		}
		c := &parsed.grammar.Serve.Config
		return c, parsed.file.locate(c.complete())
	}
	c, err := read("dashboard:\n  url: https://models.test/\n  hosts: [other.test]\n  oidc:\n    name: Acme\n    issuer: https://id.test\n" +
		"    client_id: x\n    client_secret: hush\n    only: true\n")
	if err != nil {
		t.Fatal(err)
	}
	var d dash
	d.open(c)
	o := d.options.Load()
	if o.URL != "https://models.test" || o.OIDC == nil || !o.OIDC.Only || o.OIDC.Name != "Acme" || o.OIDC.Secret.Reveal() != "hush" {
		t.Errorf("%+v", o)
	}
	if names := strings.Join(*d.edge.Hosts.Load(), " "); !strings.Contains(names, "models.test") || !strings.Contains(names, "other.test") {
		t.Error(names)
	}
	if d.apply(c); d.options.Load().OIDC != o.OIDC {
		t.Error("a reload forgets what the provider said")
	}
	for text, words := range map[string]string{
		"dashboard: {url: models.test}\n":                                  "dashboard.url",
		"dashboard: {hosts: [\"https://x\"]}\n":                            "dashboard.hosts",
		"dashboard: {oidc: {only: true}}\n":                                "needs an issuer",
		"dashboard: {oidc: {issuer: \"http://id.test\", client_id: x}}\n":  "dashboard.oidc.issuer",
		"dashboard: {oidc: {issuer: \"https://id.test\"}}\n":               "needs a client_id",
		"dashboard: {oidc: {issuer: \"https://id.test\", secret: hush}}\n": "unknown key dashboard.oidc.secret",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "c.yaml:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
