package providerkey_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/providerkey"
	"sovereign/internal/live"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/vault"
)

const (
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
)

var ann = tenant.Caller{Workspace: mine, User: "usr_ann", Key: "key_1"}.Actor()

var models = live.NewCatalog([]*live.Provider{{Name: "up", Protocol: live.OpenAI}, {Name: "other", Protocol: live.Anthropic}, {Name: "sim", Protocol: live.Sim}}, nil)

// A fixture is the provider keys of one database with two workspaces, published.
type fixture struct {
	*providerkey.Store
	db   *db.DB
	live *live.Keyring
	pub  *providerkey.Publisher
}

func eachStorage(t *testing.T, test func(t *testing.T, r fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, ws := range []tenant.ID{mine, theirs} {
			if _, err := db.Exec(t.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, ws); err != nil {
				t.Fatal(err)
			}
		}
		root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := vault.Open(t.Context(), d, root)
		if err != nil {
			t.Fatal(err)
		}
		keys := live.NewKeyring()
		log := slog.New(slog.DiscardHandler)
		pub := providerkey.NewPublisher(d, v, keys, log)
		f := feed.New(d, log, pub.Sources())
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		test(t, fixture{Store: providerkey.NewStore(d, f, v, netguard.New(nil), func() *live.Catalog { return models }), db: d, live: keys, pub: pub})
	})
}

func (r fixture) put(t *testing.T, ws tenant.ID, provider, key, url string) providerkey.ProviderKey {
	t.Helper()
	kept, err := r.Put(t.Context(), ws, ann, providerkey.New{Provider: provider, APIKey: secret.New(key), BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func TestAKeyIsInForceWhenItIsSetRotatedOrDeleted(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		if r.live.Find(mine, "up") != nil {
			t.Error("a key that nobody set")
		}
		first := r.put(t, mine, "up", "sk-one", "")
		if k := r.live.Find(mine, "up"); k == nil || k.Key.Reveal() != "sk-one" || k.Broken {
			t.Errorf("%+v", k)
		}
		if r.live.Find(theirs, "up") != nil || r.live.Find(mine, "other") != nil {
			t.Error("it is another's too")
		}
		second := r.put(t, mine, "up", "sk-two", "https://models.example.com/v1/")
		if k := r.live.Find(mine, "up"); k.Key.Reveal() != "sk-two" || k.BaseURL != "https://models.example.com/v1" {
			t.Errorf("%+v at %s", k.Key.Reveal(), k.BaseURL)
		}
		if second.CreatedAt != first.CreatedAt || second.UpdatedAt < first.UpdatedAt {
			t.Errorf("%+v after %+v", second, first)
		}
		refilled := live.NewKeyring()
		refilled.Put(mine, "stale", &live.OwnKey{})
		if err := r.pub.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if k := r.live.Find(mine, "up"); k == nil || k.Key.Reveal() != "sk-two" || r.live.Find(mine, "stale") != nil {
			t.Error("a filling finds another key")
		}
		if err := r.Delete(t.Context(), mine, ann, "up"); err != nil {
			t.Fatal(err)
		}
		if r.live.Find(mine, "up") != nil {
			t.Error("it is still in force")
		}
		var f *fault.Fault
		if err := r.Delete(t.Context(), mine, ann, "up"); !errors.As(err, &f) || f.Status != 404 {
			t.Errorf("deleted twice: %v", err)
		}
	})
}

func TestARowThatIsCopiedDoesNotOpen(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		r.put(t, mine, "up", "sk-one", "")
		for name, change := range map[string]string{
			"to another workspace": `UPDATE provider_keys SET workspace_id = 'ws_theirs'`,
			"to another provider":  `UPDATE provider_keys SET provider = 'other'`,
			"to another URL":       `UPDATE provider_keys SET base_url = 'https://elsewhere.example.com'`,
		} {
			if _, err := db.Exec(t.Context(), r.db.Across("test"), `DELETE FROM provider_keys`); err != nil {
				t.Fatal(err)
			}
			r.put(t, mine, "up", "sk-one", "")
			if _, err := db.Exec(t.Context(), r.db.Across("test"), change); err != nil {
				t.Fatal(err)
			}
			if err := r.pub.Fill(t.Context()); err != nil {
				t.Fatal(err)
			}
			broken := 0
			for _, ws := range []tenant.ID{mine, theirs} {
				for _, provider := range []string{"up", "other"} {
					if k := r.live.Find(ws, provider); k != nil {
						if !k.Broken || !k.Key.Empty() || k.BaseURL != "" {
							t.Errorf("%s: it opens", name)
						}
						broken++
					}
				}
			}
			if broken != 1 {
				t.Errorf("%s: %d keys", name, broken)
			}
		}
	})
}

func TestAKeyIsShownNowhere(t *testing.T) {
	const canary = "sk-canary-0123456789"
	eachStorage(t, func(t *testing.T, r fixture) {
		r.put(t, mine, "up", canary, "")
		r.put(t, mine, "up", canary+"2", "https://models.example.com")
		list, err := r.List(t.Context(), mine, 10, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		trail, err := audit.List(t.Context(), r.db, mine, "", 10, 0)
		if err != nil || len(trail) != 2 {
			t.Fatal(trail, err)
		}
		shown, err := json.Marshal([]any{list, trail})
		if err != nil {
			t.Fatal(err)
		}
		type row struct{ Sealed []byte }
		rows, err := db.Query[row](t.Context(), r.db.Across("test"), `SELECT sealed FROM provider_keys`)
		if err != nil {
			t.Fatal(err)
		}
		everything := string(shown) + fmt.Sprintf("%s %+v", rows[0].Sealed, r.live.Find(mine, "up"))
		if strings.Contains(everything, "canary") {
			t.Errorf("the key is in %s", everything)
		}
		if others, err := r.List(t.Context(), theirs, 10, 0); err != nil || len(others) != 0 {
			t.Errorf("another workspace sees %v %v", others, err)
		}
	})
}

func TestWhatIsNoKeyIsRefusedByItsField(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		for name, c := range map[string]struct {
			in   providerkey.New
			want string
		}{
			"no provider":         {providerkey.New{Provider: "nobody", APIKey: secret.New("k")}, ""},
			"a simulated one":     {providerkey.New{Provider: "sim", APIKey: secret.New("k")}, "provider"},
			"no key":              {providerkey.New{Provider: "up"}, "api_key"},
			"a key of two lines":  {providerkey.New{Provider: "up", APIKey: secret.New("a\nX-Evil: b")}, "api_key"},
			"a file":              {providerkey.New{Provider: "up", APIKey: secret.New(strings.Repeat("k", 5000))}, "api_key"},
			"no URL":              {providerkey.New{Provider: "up", APIKey: secret.New("k"), BaseURL: "ftp://example.com"}, "base_url"},
			"a URL with a secret": {providerkey.New{Provider: "up", APIKey: secret.New("k"), BaseURL: "https://me:pw@example.com"}, "base_url"},
			"the machine itself":  {providerkey.New{Provider: "up", APIKey: secret.New("k"), BaseURL: "http://127.0.0.1:8080"}, "base_url"},
			"the cloud's secrets": {providerkey.New{Provider: "up", APIKey: secret.New("k"), BaseURL: "http://169.254.169.254/latest"}, "base_url"},
		} {
			_, err := r.Put(t.Context(), mine, ann, c.in)
			var f *fault.Fault
			if !errors.As(err, &f) || f.Status != 400 || f.Field != c.want {
				t.Errorf("%s: %v", name, err)
			}
		}
		if list, _ := r.List(t.Context(), mine, 10, 0); len(list) != 0 {
			t.Errorf("%v was kept", list)
		}
	})
}
