package evalendpoint_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/evalendpoint"
	"sovereign/internal/net/netguard"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/quota"
	"sovereign/internal/store/vault"
)

const (
	mine   tenant.ID = "ws_mine"
	theirs tenant.ID = "ws_theirs"
	canary           = "sk-canary-0123456789"
)

var (
	ann      = tenant.Caller{Workspace: mine, User: "usr_ann", Key: "key_1"}.Actor()
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
)

// A fixture is the endpoints of one database with two workspaces. Its guard allows 127.0.0.1.
type fixture struct {
	*evalendpoint.Store
	db     *db.DB
	vault  *vault.Vault
	client *evalendpoint.Client
}

func eachStorage(t *testing.T, test func(t *testing.T, r fixture), options ...netguard.Option) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, mine, theirs)
		root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := vault.Open(t.Context(), d, root)
		if err != nil {
			t.Fatal(err)
		}
		guard := netguard.New(loopback, append([]netguard.Option{netguard.WithRefusalTime(0)}, options...)...)
		t.Cleanup(guard.Close)
		s := evalendpoint.NewStore(d, v, guard)
		test(t, fixture{Store: s, db: d, vault: v, client: evalendpoint.NewClient(s, guard)})
	})
}

func key(text string) *secret.Text {
	k := secret.New(text)
	return &k
}

func (r fixture) put(t *testing.T, n evalendpoint.New) evalendpoint.EvalEndpoint {
	t.Helper()
	kept, err := r.Put(t.Context(), mine, ann, n)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func refused(err error, status int, field string) bool {
	f := fault.From(err)
	return f != nil && f.Status == status && f.Field == field
}

var shape = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\b(ep|req|aud)_[0-9a-z]{26}\b`)

func TestTheLifeOfAnEndpointOnTheWire(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		f := feed.New(r.db, slog.New(slog.DiscardHandler), nil)
		d := apitest.NewClient(t, r.db, f, mine, theirs, evalendpoint.Module(r.Store).Routes, func(text string) string { return shape.ReplaceAllString(text, "X") })
		const plain = `{"id":"X","object":"endpoint","name":"ours","base_url":"https://models.example.com/v1","model":"m-1","has_api_key":false,"created_at":"X","updated_at":"X"}`
		keyed := strings.Replace(strings.Replace(plain, "m-1", "m-2", 1), "false", "true", 1)
		d.Wants(t, d.Owner, "POST", "/v1/endpoints", `{"name":"ours","base_url":"HTTPS://models.example.com/v1/","model":"m-1"}`, 201, plain)
		first, err := r.List(t.Context(), mine, 2, 0)
		if err != nil || len(first) != 1 {
			t.Fatal(first, err)
		}
		at := "/v1/endpoints/" + first[0].ID
		d.Wants(t, d.Owner, "POST", "/v1/endpoints", `{"name":"ours","base_url":"https://models.example.com/v1","model":"m-2","api_key":"`+canary+`"}`, 200, keyed)
		if again, err := r.List(t.Context(), mine, 2, 0); err != nil || len(again) != 1 || again[0].ID != first[0].ID || again[0].CreatedAt != first[0].CreatedAt {
			t.Errorf("%v became %v: %v", first, again, err)
		}
		d.Wants(t, d.Member, "GET", at, "", 200, keyed)
		d.Wants(t, d.Member, "GET", "/v1/endpoints", "", 200, `{"object":"list","data":[`+keyed+`],"has_more":false}`)
		d.Refuses(t, d.Member, "POST", "/v1/endpoints", `{"name":"ours","base_url":"https://models.example.com/v1","model":"m-3"}`, 403, "insufficient_permissions", "")
		d.Refuses(t, d.Member, "DELETE", at, "", 403, "insufficient_permissions", "")
		d.Refuses(t, d.Other, "GET", at, "", 404, "not_found", "")
		d.Refuses(t, d.Other, "DELETE", at, "", 404, "not_found", "")
		d.Wants(t, d.Other, "GET", "/v1/endpoints", "", 200, `{"object":"list","data":[],"has_more":false}`)
		d.Wants(t, d.Owner, "DELETE", at, "", 200, `{"id":"X","object":"endpoint","deleted":true}`)
		d.Refuses(t, d.Owner, "DELETE", at, "", 404, "not_found", "")
		d.Refuses(t, d.Member, "GET", at, "", 404, "not_found", "")
	})
}

func TestWhatIsNoEndpointIsRefusedByItsField(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		good := evalendpoint.New{Name: "ours", BaseURL: "https://models.example.com", Model: "m"}
		for name, c := range map[string]struct {
			change func(*evalendpoint.New)
			field  string
		}{
			"no name":              {func(n *evalendpoint.New) { n.Name = "" }, "name"},
			"a long name":          {func(n *evalendpoint.New) { n.Name = strings.Repeat("é", 65) }, "name"},
			"a name of two lines":  {func(n *evalendpoint.New) { n.Name = "a\nb" }, "name"},
			"no model":             {func(n *evalendpoint.New) { n.Model = "" }, "model"},
			"a model of two lines": {func(n *evalendpoint.New) { n.Model = "a\x1b[2J" }, "model"},
			"no URL":               {func(n *evalendpoint.New) { n.BaseURL = "" }, "base_url"},
			"another protocol":     {func(n *evalendpoint.New) { n.BaseURL = "ftp://example.com" }, "base_url"},
			"a URL with a secret":  {func(n *evalendpoint.New) { n.BaseURL = "https://me:pw@example.com" }, "base_url"},
			"a URL with a query":   {func(n *evalendpoint.New) { n.BaseURL = "https://example.com/?key=1" }, "base_url"},
			"the machine itself":   {func(n *evalendpoint.New) { n.BaseURL = "http://[::1]:8080" }, "base_url"},
			"a private network":    {func(n *evalendpoint.New) { n.BaseURL = "http://10.1.2.3" }, "base_url"},
			"the cloud's secrets":  {func(n *evalendpoint.New) { n.BaseURL = "http://169.254.169.254/latest" }, "base_url"},
			"an empty key":         {func(n *evalendpoint.New) { n.APIKey = key("") }, "api_key"},
			"a word for a key":     {func(n *evalendpoint.New) { n.APIKey = key("EMPTY") }, "api_key"},
			"a key of two lines":   {func(n *evalendpoint.New) { n.APIKey = key("12345678\r\nX-Evil: b") }, "api_key"},
			"a file":               {func(n *evalendpoint.New) { n.APIKey = key(strings.Repeat("k", 5000)) }, "api_key"},
		} {
			n := good
			c.change(&n)
			if _, err := r.Put(t.Context(), mine, ann, n); !refused(err, 400, c.field) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if all, err := r.List(t.Context(), mine, 10, 0); err != nil || len(all) != 0 {
			t.Errorf("%v was kept, %v", all, err)
		}
	})
}

func TestAKeyIsKeptForItsURLAlone(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		n := evalendpoint.New{Name: "ours", BaseURL: "https://one.example.com", Model: "m", APIKey: key(canary)}
		first := r.put(t, n)
		n.APIKey, n.Model = nil, "m-2"
		if kept := r.put(t, n); kept.ID != first.ID || !kept.HasAPIKey || kept.Model != "m-2" {
			t.Errorf("%+v after %+v", kept, first)
		}
		n.BaseURL = "https://two.example.com"
		if _, err := r.Put(t.Context(), mine, ann, n); !refused(err, 400, "api_key") {
			t.Errorf("the key goes to another URL: %v", err)
		}
		if kept, err := r.Get(t.Context(), mine, first.ID); err != nil || kept.BaseURL != "https://one.example.com" || kept.Model != "m-2" {
			t.Errorf("%+v %v", kept, err)
		}
		n.APIKey = key("sk-another-0123")
		if kept := r.put(t, n); kept.ID != first.ID || kept.BaseURL != "https://two.example.com" || !kept.HasAPIKey {
			t.Errorf("%+v", kept)
		}
		without := evalendpoint.New{Name: "open", BaseURL: "https://one.example.com", Model: "m"}
		r.put(t, without)
		without.BaseURL = "https://two.example.com"
		if kept := r.put(t, without); kept.HasAPIKey {
			t.Errorf("%+v: there was no key to give again", kept)
		}
	})
}

func TestAnEndpointIsItsWorkspacesAlone(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		ours := r.put(t, evalendpoint.New{Name: "same", BaseURL: "https://one.example.com", Model: "m", APIKey: key(canary)})
		other, err := r.Put(t.Context(), theirs, ann, evalendpoint.New{Name: "same", BaseURL: "https://two.example.com", Model: "m"})
		if err != nil || other.ID == ours.ID || other.HasAPIKey {
			t.Fatalf("%+v %v", other, err)
		}
		if err := r.Check(t.Context(), r.db.In(mine), ours.ID); err != nil {
			t.Error(err)
		}
		for name, call := range map[string]func() error{
			"check":  func() error { return r.Check(t.Context(), r.db.In(theirs), ours.ID) },
			"get":    func() error { _, err := r.Get(t.Context(), theirs, ours.ID); return err },
			"delete": func() error { return r.Delete(t.Context(), theirs, ann, ours.ID) },
			"call": func() error {
				_, err := r.client.Complete(t.Context(), theirs, ours.ID, []byte(`{"model":"m"}`))
				return err
			},
		} {
			if err := call(); !refused(err, 404, "") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestAKeyIsShownNowhere(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		n := evalendpoint.New{Name: "ours", BaseURL: "https://one.example.com", Model: "m", APIKey: key(canary)}
		kept := r.put(t, n)
		r.put(t, n)
		if err := r.Delete(t.Context(), mine, ann, kept.ID); err != nil {
			t.Fatal(err)
		}
		r.put(t, n)
		trail, err := audit.List(t.Context(), r.db, mine, "", 10, 0)
		if err != nil || len(trail) != 4 {
			t.Fatal(trail, err)
		}
		shown, err := json.Marshal([]any{kept, trail, n})
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := db.One[[]byte](t.Context(), r.db.In(mine), `SELECT sealed FROM eval_endpoints WHERE workspace_id = $1`)
		if err != nil || len(sealed) == 0 {
			t.Fatal(sealed, err)
		}
		if all := string(shown) + fmt.Sprintf("%s %+v", sealed, n); strings.Contains(all, "canary") {
			t.Errorf("the key is in %s", all)
		}
	})
}

func TestAQuotaBoundsTheEndpointsAndNotTheirChange(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		if _, err := quota.Set(t.Context(), r.db, mine, ann, map[string]int64{"endpoints": 1}); err != nil {
			t.Fatal(err)
		}
		n := evalendpoint.New{Name: "one", BaseURL: "https://one.example.com", Model: "m"}
		r.put(t, n)
		r.put(t, n)
		n.Name = "two"
		if _, err := r.Put(context.Background(), mine, ann, n); fault.From(err) == nil || fault.From(err).Kind != fault.QuotaExceeded {
			t.Errorf("one too many: %v", err)
		}
	})
}
