package app

import (
	"net"
	"net/url"
	"strings"
	"sync/atomic"

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
	options  atomic.Pointer[signin.Options]
	address  atomic.Pointer[string] // the URL of the listener, once there is one
}

// Dashboard says where the dashboard is reached, and how people sign in.
type Dashboard struct {
	URL   string   `name:"url" placeholder:"URL" help:"The address by which people reach the dashboard, such as https://models.example.com; links begin with it. By default that of the listener."`
	Hosts []string `placeholder:"NAME" help:"Host names by which people reach the dashboard, beside that of dashboard.url, the server's own address and localhost. Requests for other hosts are refused."`
}

// check reports a key that cannot be used.
func (d *Dashboard) check() error {
	if d.URL != "" {
		u, err := url.Parse(d.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return bad("dashboard.url", "%q is not an address such as https://models.example.com", d.URL)
		}
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
	d.options.Store(&signin.Options{URL: address, Release: version()})
}

// modules are what the dashboard serves beside the domains.
func (d *dash) modules(i *instance) []module.Module {
	d.sessions = signin.NewStore(i.storage.db, i.state.feed, i.domains.workspaces)
	return []module.Module{signin.Module(signin.Deps{
		DB: i.storage.db, Store: d.sessions, Sessions: d.edge.Sessions, Log: i.log,
		Options: func() signin.Options { return *d.options.Load() },
	}), dashpage.Module()}
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
