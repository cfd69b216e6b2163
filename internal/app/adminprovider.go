package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/term"

	"sovereign/internal/domain/providerkey"
	"sovereign/internal/store/api"
)

type providerKeyCommand struct {
	Set    providerKeySet    `cmd:"" help:"Set or rotate a key. Requests that begin afterwards use it; those that run go on with the one before."`
	List   providerKeyList   `cmd:"" help:"List the providers that a workspace has keys for. A key itself is never shown."`
	Delete providerKeyDelete `cmd:"" help:"Delete a key. The server's own is used again, where it has one."`
}

type providerKeySet struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	Provider    string `required:"" placeholder:"NAME" help:"A provider of the catalog, such as anthropic."`
	KeyFile     string `default:"-" placeholder:"FILE" help:"Where the key is read from; by default the standard input, or the terminal, where it is not shown."`
	BaseURL     string `name:"base-url" placeholder:"URL" help:"Where requests are sent, if not to the provider's own URL. It must be public."`
}

func (c *providerKeySet) Run(a *admin) error {
	key, err := readSecret(c.KeyFile)
	if err != nil {
		return err
	}
	in := map[string]string{"workspace": c.Workspace, "provider": c.Provider, "api_key": key}
	if c.BaseURL != "" {
		in["base_url"] = c.BaseURL
	}
	var kept providerkey.ProviderKey
	if err := a.call(http.MethodPut, "/admin/provider-keys", in, &kept, repeatable); err != nil {
		return err
	}
	return a.show(c.JSON, kept, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "set\t%s\t%s\n", kept.Provider, kept.UpdatedAt)
	})
}

// maxSecret bounds a file that holds a key.
const maxSecret = 64 << 10

// readSecret reads a key from where no list of processes and no history of a shell shows it.
func readSecret(path string) (string, error) {
	from := os.Stdin
	if path != "-" {
		file, err := os.Open(path) //nolint:gosec // the operator's own path
		if err != nil {
			return "", err
		}
		defer func() { _ = file.Close() }()
		from = file
	}
	text, err := readOrAsk(from)
	if err != nil {
		return "", err
	}
	if key := strings.TrimSpace(string(text)); key != "" {
		return key, nil
	}
	return "", errors.New("no key was given: it is read from the standard input, or from --key-file")
}

// readOrAsk reads all there is, or, where a person sits, one line that is not shown.
func readOrAsk(from *os.File) ([]byte, error) {
	at := int(from.Fd())
	if !term.IsTerminal(at) {
		return io.ReadAll(io.LimitReader(from, maxSecret))
	}
	_, _ = fmt.Fprint(os.Stderr, "The key (it is not shown): ")
	text, err := term.ReadPassword(at)
	_, _ = fmt.Fprintln(os.Stderr)
	return text, err
}

type providerKeyList struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	page        `embed:""`
}

func (c *providerKeyList) Run(a *admin) error {
	query := c.query()
	query.Set("workspace", c.Workspace)
	return list(a, c.JSON, "/admin/provider-keys", query, "PROVIDER\tURL\tMADE\tROTATED", func(k providerkey.ProviderKey) string {
		at := k.BaseURL
		if at == "" {
			at = "the provider's own"
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", k.Provider, at, k.CreatedAt, k.UpdatedAt)
	})
}

type providerKeyDelete struct {
	asJSON      `embed:""`
	ofWorkspace `embed:""`
	Provider    string `required:"" placeholder:"NAME" help:"The provider."`
}

func (c *providerKeyDelete) Run(a *admin) error {
	var gone api.Deleted
	path := "/admin/provider-keys/" + url.PathEscape(c.Provider) + "?" + url.Values{"workspace": {c.Workspace}}.Encode()
	if err := a.call(http.MethodDelete, path, nil, &gone, once); err != nil {
		return err
	}
	return a.show(c.JSON, gone, func(w io.Writer) { _, _ = fmt.Fprintf(w, "deleted\t%s\n", gone.ID) })
}
