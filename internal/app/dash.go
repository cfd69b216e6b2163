package app

import (
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"sovereign/internal/base/secret"
	"sovereign/internal/dash/demo"
	dashpage "sovereign/internal/dash/page"
	"sovereign/internal/dash/signin"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/module"
)

// dash is what the dashboard adds to an instance: its sessions, and how people sign in.
type dash struct {
	edge     *edge.Dashboard
	sessions *signin.Store
	demos    *demo.Store
	options  atomic.Pointer[signin.Options]
	address  atomic.Pointer[string] // the URL of the listener, once there is one
}

// Dashboard says where the dashboard is reached, and how people sign in.
type Dashboard struct {
	URL   string   `name:"url" placeholder:"URL" help:"The address by which people reach the dashboard, such as https://models.example.com; links begin with it. By default that of the listener."`
	Hosts []string `placeholder:"NAME" help:"Host names by which people reach the dashboard, beside that of dashboard.url, the server's own address and localhost. Requests for other hosts are refused."`
	OIDC  OIDC     `embed:"" prefix:"oidc-"`
}

// OIDC is an identity provider that people may sign in at.
type OIDC struct {
	Name         string      `default:"single sign-on" help:"Its name, as the sign-in page shows it."`
	Issuer       string      `placeholder:"URL" help:"Its issuer, such as https://accounts.example.com; empty for none."`
	ClientID     string      `name:"client-id" placeholder:"ID" help:"The client that it knows this server as. Its redirect URI is dashboard.url and /dashboard/api/session/oidc/callback."`
	ClientSecret secret.Text `placeholder:"TEXT" help:"The secret of the client; empty for a public client."`
	Only         bool        `help:"Close every other way in: passwords, and links but those of admin dashboard link."`
}

// provider returns the identity provider, or nil.
func (o *OIDC) provider() *signin.Provider {
	if o.Issuer == "" {
		return nil
	}
	return signin.NewProvider(o.Name, o.Issuer, o.ClientID, o.ClientSecret, o.Only)
}

// check reports a key that cannot be used.
func (o *OIDC) check() error {
	if o.Issuer == "" {
		if o.Only || o.ClientID != "" {
			return bad("dashboard.oidc", "needs an issuer")
		}
		return nil
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !edge.IsOwnHost(u.Hostname(), nil)) {
		return bad("dashboard.oidc.issuer", "%q is not an address such as https://accounts.example.com", o.Issuer)
	}
	if o.ClientID == "" {
		return bad("dashboard.oidc", "needs a client_id with its issuer")
	}
	if o.Name == "" {
		return bad("dashboard.oidc.name", "must not be empty")
	}
	return nil
}

// check reports a key that cannot be used.
func (d *Dashboard) check() error {
	if d.URL != "" {
		u, err := url.Parse(d.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
			u.RawQuery != "" || u.Fragment != "" {
			return bad("dashboard.url", "%q is not an address such as https://models.example.com", d.URL)
		}
	}
	if err := d.OIDC.check(); err != nil {
		return err
	}
	for _, name := range d.Hosts {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			return bad("dashboard.hosts", "%q is not a host name such as models.example.com", name)
		}
	}
	return nil
}

// open makes the dashboard's part of the state, before the domains.
func (d *dash) open(c *Config) {
	d.edge = &edge.Dashboard{Sessions: live.NewSessions()}
	d.apply(c)
}

// apply puts in force what may change while running.
func (d *dash) apply(c *Config) {
	names := []string{edge.Hostname(c.Listen)}
	if u, err := url.Parse(c.Dashboard.URL); err == nil && u.Host != "" {
		names = append(names, edge.Hostname(u.Host))
	}
	for _, name := range c.Dashboard.Hosts {
		names = append(names, edge.Hostname(name))
	}
	d.edge.Hosts.Store(&names)
	address := strings.TrimRight(c.Dashboard.URL, "/")
	if at := d.address.Load(); address == "" && at != nil {
		address = *at
	} else if address == "" {
		address = urlOf(c.Listen, c.TLS.Cert != "")
	}
	provider := c.Dashboard.OIDC.provider()
	if before := d.options.Load(); before != nil && before.OIDC.Same(provider) {
		provider = before.OIDC // which may have been asked for its keys
	}
	d.options.Store(&signin.Options{URL: address, Release: version(), OIDC: provider})
}

// modules are what the dashboard serves beside the domains.
func (d *dash) modules(i *instance) []module.Module {
	d.sessions = signin.NewStore(i.storage.db, i.state.feed, i.domains.workspaces)
	options := func() signin.Options { return *d.options.Load() }
	attachReviews(i.domains.reviews, d.sessions, options)
	d.demos = newDemos(i)
	return []module.Module{signin.Module(signin.Deps{
		DB: i.storage.db, Store: d.sessions, Sessions: d.edge.Sessions, Log: i.log, Options: options,
	}), dashpage.Module(), demo.Module(d.demos)}
}

// urlOf is the URL of a listening address for a client on this machine.
func urlOf(address string, secure bool) string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return scheme + "://" + address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
