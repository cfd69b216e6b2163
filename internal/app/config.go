package app

import (
	"encoding"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/domain/billing"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/domain/notify"
)

// A Config is everything that can be set. Each key is in the file under its name with underscores (limits.body), in the
// environment as SOVEREIGN_LIMITS_BODY, and on the command line as --limits-body. The command line takes precedence
// over the environment, the environment over the file, and the file over the default.
type Config struct {
	Storage          `embed:""`
	Listen           string   `default:"127.0.0.1:8080" help:"Address of the API. With socket activation, the inherited socket is used instead."`
	OperationsListen string   `default:"127.0.0.1:9090" help:"Address of metrics, health checks and profiles, for operators alone; \"off\" to serve none."`
	OperationsHosts  []string `placeholder:"NAME" help:"Host names by which operators reach operations_listen, beside its own address and localhost. Requests for other hosts are refused."`
	TLS              TLS      `embed:"" prefix:"tls-"`
	TrustedProxies   []string `placeholder:"CIDR" help:"Proxies whose X-Forwarded-For header is trusted. The limits per address apply to the addresses in it, not to the proxies."`
	Unlimited        []string `name:"unlimited-addresses" default:"127.0.0.0/8,::1/128" placeholder:"CIDR" help:"Addresses that the limits per address do not apply to."`
	FastLane         bool     `default:"true" negatable:"" help:"Serve plain inference requests with a leaner HTTP/1.1 server than net/http, which serves all others. Without TLS only."`
	LogLevel         string   `default:"info" help:"debug, info, warn or error."`
	LogFormat        string   `default:"text" help:"text or json."`
	OTLPEndpoint     string   `name:"otlp-endpoint" placeholder:"URL" help:"Collector that traces are sent to, as OTLP over HTTP; empty to send none. The OTEL_EXPORTER_OTLP_… variables work too."`
	GuardAllow       []string `placeholder:"CIDR" help:"Address ranges that are not public, and that URLs set by customers may still point to."`
	OwnKeyFeePercent Percent  `default:"0" help:"Percentage of a model's price that a workspace pays for calls with its own provider key."`
	Limits           Limits   `embed:"" prefix:"limits-"`
	Stripe           Stripe   `embed:"" prefix:"stripe-"`
	SMTP             SMTP     `name:"smtp" embed:"" prefix:"smtp-"`

	Training Training `embed:"" prefix:"training-"`
	Serving  Serving  `embed:"" prefix:"serving-"`

	Kubernetes Kubernetes `embed:"" prefix:"kubernetes-"`

	Dashboard Dashboard `embed:"" prefix:"dashboard-"`

	Providers catalog.Providers `placeholder:"YAML" help:"Providers of models: a list of {name, kind: openai|anthropic|gemini|cohere|sim, base_url, api_key, ca_file, …}. A provider of the built-in catalog needs its name and api_key alone. api_key may be env:NAME or file:PATH."`
	Models    catalog.Models    `placeholder:"YAML" help:"Models beside the built-in ones, or in their place: a list of {id, provider, upstream_model, kind: chat|embedding|rerank, context_window, max_output_tokens, price: {input_per_mtok_usd, output_per_mtok_usd, …}}."`
}

// Storage is where data is stored, and the key that opens it.
type Storage struct {
	DataDir     string      `default:"data" help:"The data folder."`
	DatabaseURL secret.Text `name:"database-url" placeholder:"URL" help:"postgres://… ; empty for the embedded database in the data folder."`
	RootKeyFile string      `placeholder:"FILE" help:"File of the key that encrypts stored secrets. By default it is beside the data folder, with the same name and .root.key. It is created on the first start. Keep a copy elsewhere."`
}

// TLS is the certificate that the API is served with.
type TLS struct {
	Cert string `placeholder:"FILE" help:"Certificate chain, PEM; with it the API is served over TLS."`
	Key  string `placeholder:"FILE" help:"Its private key, PEM."`
}

// Limits bound what callers can make the server hold or wait for.
type Limits struct {
	Body             Bytes         `default:"32MiB" help:"One request body."`
	BufferedMemory   Bytes         `default:"1GiB" help:"All request bodies held at once; over it, requests are refused with 429. One workspace gets two thirds at most, and less when others use it too. At least twice limits.body. The memory limit of the process follows from it, unless GOMEMLIMIT is set."`
	Connections      int64         `default:"10000" help:"Open connections, a quarter of them only for callers that have shown a valid key. When there is no room, the oldest connection without a key is closed; when all have one, new ones are refused with 429. One workspace may have at most two thirds of them."`
	AddressConns     int64         `name:"address-connections" default:"2500" help:"Open connections of one address (IPv6: of one /64). Over it, its oldest connection without a key is closed; when all have one, new ones are refused with 429."`
	AddressKeyless   int64         `default:"1000" help:"Connections and requests without a valid key that one address (IPv6: one /64) may start in ten seconds; over it, they are refused with 429."`
	Operations       int64         `default:"256" help:"Management operations that run at once; over it, they are refused with 429."`
	Headers          Bytes         `default:"64KiB" help:"The headers of one request."`
	HeaderTimeout    time.Duration `default:"10s" help:"Time until the headers of a request have arrived."`
	BodyTimeout      time.Duration `default:"60s" help:"Time until the whole request has arrived."`
	UploadRate       Bytes         `default:"8KiB" help:"Bytes per second that a request body must arrive with, on average over ten seconds; slower ones get 408. 0 for any rate."`
	IdleTimeout      time.Duration `default:"120s" help:"How long an idle connection is kept."`
	OperationTimeout time.Duration `default:"30s" help:"How long a management operation may take."`
	Drain            time.Duration `default:"30s" help:"How long running requests may go on after SIGTERM."`
	RequestTimeout   time.Duration `default:"10m" help:"How long an inference request may take, with all its attempts."`
	TryTimeout       time.Duration `default:"5m" help:"Time until a provider's answer begins. After it, a fallback is tried, or the caller gets 408."`
	StallTimeout     time.Duration `default:"2m" help:"How long a provider may pause within a stream."`
	LeaveTimeout     time.Duration `default:"2s" help:"How long a stream is read on after its caller has left, for the usage that the provider reports at its end. Then it is cancelled, and charged by what was delivered."`
	AbandonedPercent Percent       `default:"1" help:"Percentage of what a workspace has paid in the last 24 hours up to which unstreamed requests are free whose callers left after a second. Beyond it they are charged."`
	AbandonedUSD     Dollars       `name:"abandoned-usd" default:"0.10" help:"The least that a workspace may abandon in 24 hours without a charge, in dollars."`
	Retries          int           `default:"2" help:"How often a failed attempt is repeated at the same model, before any content was sent."`
	LogSpool         Bytes         `default:"1GiB" help:"Logged exchanges on the disk that wait for the log database. Over it, exchanges are lost, and counted. A change needs a restart."`
	Cache            Bytes         `default:"64MiB" help:"Memory for cached answers of workspaces that have turned the cache on; 0 to cache none."`
	BreakerFailures  int           `default:"10" help:"Failures in a row after which a model gets no requests for a while (circuit breaker); 0 to turn it off."`
	BreakerPause     time.Duration `default:"5s" help:"How long a failing model gets no requests at first. It doubles each time, up to a minute."`
	JudgeCalls       int64         `default:"8" help:"Requests to judges, and to the models that an eval compares, that one job sends at once."`
	RewardCalls      int64         `default:"64" help:"Requests to the judges of reward sessions that are sent at once, for all callers together."`
	RewardRetention  int64         `name:"reward-retention-days" default:"90" help:"Days after the end of a reward session after which its tasks and scored items are deleted; 0 to keep them."`
	DefaultMaxTokens int64         `default:"0" help:"Output tokens of a request that names no maximum; it is sent to the provider, and lowers the hold. 0 for the maximum of the model."`
}

// Stripe is the account that card payments go to. Without keys there are none.
type Stripe struct {
	SecretKey     secret.Text `placeholder:"KEY" help:"Secret or restricted key of the Stripe account that card payments go to; empty for no card payments. A restricted key needs to write Checkout sessions."`
	WebhookSecret secret.Text `placeholder:"SECRET" help:"Signing secret (whsec_…) of the webhook endpoint <dashboard.url>/dashboard/webhooks/stripe. It goes with secret_key."`
	MinUSD        Dollars     `name:"min-usd" default:"5" help:"The least that one card payment may be, in dollars."`
	MaxUSD        Dollars     `name:"max-usd" default:"5000" help:"The most that one card payment may be, in dollars."`
	APIBase       string      `name:"api-base" default:"https://api.stripe.com" placeholder:"URL" help:"Stripe's API, for tests."`
}

// SMTP is the mail server that notices are sent through. Without a host none are.
type SMTP struct {
	Host     string      `placeholder:"NAME" help:"Mail server for notifications; empty to send no e-mail."`
	Port     int         `default:"587" help:"Its port."`
	Username string      `placeholder:"NAME" help:"User, if the mail server asks for one."`
	Password secret.Text `placeholder:"TEXT" help:"Password of the user."`
	From     string      `placeholder:"ADDRESS" help:"Sender of notifications."`
	TLS      string      `name:"tls" default:"starttls" help:"starttls, implicit or none. A password is not sent without TLS."`
}

// payments returns how card payments are made.
func (c *Config) payments() billing.Config {
	return billing.Config{
		SecretKey: c.Stripe.SecretKey, WebhookSecret: c.Stripe.WebhookSecret,
		Base: strings.TrimRight(c.Stripe.APIBase, "/"), Site: c.site(),
		Bounds: billing.Bounds{Min: money.Nano(c.Stripe.MinUSD), Max: money.Nano(c.Stripe.MaxUSD)},
	}
}

// mail returns how e-mail is sent.
func (c *Config) mail() notify.Mail {
	m := &c.SMTP
	return notify.Mail{
		Host: m.Host, Port: m.Port, Username: m.Username, Password: m.Password, From: m.From, TLS: m.TLS,
	}
}

// site is where people reach the server, without a slash at its end.
func (c *Config) site() string { return strings.TrimRight(c.Dashboard.URL, "/") }

// checkBilling checks what payments and notifications need.
func (c *Config) checkBilling() error {
	payments := c.payments()
	if err := payments.Check(); err != nil {
		return bad("stripe", "%w", err)
	}
	mail := c.mail()
	if err := mail.Check(); err != nil {
		return bad("smtp", "%w", err)
	}
	return nil
}

// Bytes is a size such as 512KiB, 32MiB, 1GiB or a plain number of bytes.
type Bytes int64

var _ encoding.TextUnmarshaler = (*Bytes)(nil)

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, shift := string(text), 0
	for unit, by := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if rest, ok := strings.CutSuffix(number, unit); ok {
			number, shift = strings.TrimSpace(rest), by
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<40)>>shift {
		return fmt.Errorf("%q is not a size such as 512KiB, 32MiB or 1GiB", text)
	}
	*b = Bytes(n << shift)
	return nil
}

// Percent is a share such as 2.5, in millionths.
type Percent int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Percent) UnmarshalText(text []byte) error {
	amount, err := money.Parse(string(text))
	const millionth = money.Dollar / 10_000 // of a hundred
	if err != nil || amount < 0 || amount > 100*money.Dollar || amount%millionth != 0 {
		return fmt.Errorf("%q is not a percentage from 0 to 100 with at most 4 decimals", text)
	}
	*p = Percent(amount / millionth)
	return nil
}

// Dollars is an amount of money such as 0.10.
type Dollars money.Nano

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Dollars) UnmarshalText(text []byte) error {
	amount, err := money.Parse(string(text))
	if err != nil || amount < 0 {
		return fmt.Errorf("%q is not an amount of dollars such as 0.10", text)
	}
	*d = Dollars(amount)
	return nil
}

// A badKey is an error about a key of the configuration.
type badKey struct {
	key string // as in the file: limits.body
	err error
}

func (b *badKey) Error() string { return b.key + ": " + b.err.Error() }

func bad(key, reason string, args ...any) error {
	return &badKey{key: key, err: fmt.Errorf(reason, args...)}
}

// complete checks c and fills in derived values.
func (c *Config) complete() error {
	if err := c.Storage.complete(); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return bad("listen", "%q is not an address such as 127.0.0.1:8080", c.Listen)
	}
	if c.OperationsListen != "off" {
		if _, _, err := net.SplitHostPort(c.OperationsListen); err != nil {
			return bad("operations_listen", "%q is not an address such as 127.0.0.1:9090, nor off", c.OperationsListen)
		}
	}
	for _, name := range c.OperationsHosts {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			return bad("operations_hosts", "%q is not a host name such as metrics.internal", name)
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		return bad("tls", "cert and key go together")
	}
	if _, err := prefixes("trusted_proxies", c.TrustedProxies); err != nil {
		return err
	}
	if _, err := prefixes("unlimited_addresses", c.Unlimited); err != nil {
		return err
	}
	if _, err := prefixes("guard_allow", c.GuardAllow); err != nil {
		return err
	}
	if _, err := c.level(); err != nil {
		return err
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return bad("log_format", "%q is neither text nor json", c.LogFormat)
	}
	if c.OTLPEndpoint != "" {
		if u, err := url.Parse(c.OTLPEndpoint); err != nil || (u.Scheme != "http" && u.Scheme != "https") ||
			u.Host == "" {
			return bad("otlp_endpoint", "%q is not a URL such as http://127.0.0.1:4318", c.OTLPEndpoint)
		}
	}
	if _, err := catalog.Build(c.Providers, c.Models); err != nil {
		return err
	}
	for _, check := range []func() error{
		c.Dashboard.check, c.checkBilling, c.Training.check, c.Serving.check, c.Kubernetes.check, c.Limits.check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// collector is the URL that traces are posted to: one without a path gets OTLP's usual path.
func (c *Config) collector() string {
	if u, err := url.Parse(c.OTLPEndpoint); err == nil && (u.Path == "" || u.Path == "/") {
		return u.JoinPath("v1", "traces").String()
	}
	return c.OTLPEndpoint
}

func (l Limits) check() error {
	for key, value := range map[string]Bytes{
		"body": l.Body, "buffered_memory": l.BufferedMemory, "headers": l.Headers,
	} {
		if value < 1 {
			return bad("limits."+key, "must be above 0")
		}
	}
	for key, value := range map[string]int64{
		"connections": l.Connections, "address_connections": l.AddressConns, "address_keyless": l.AddressKeyless,
		"operations": l.Operations,
	} {
		if value < 1 {
			return bad("limits."+key, "must be at least 1")
		}
	}
	if l.Retries < 0 || l.Retries > 10 {
		return bad("limits.retries", "must be from 0 to 10")
	}
	if l.BreakerFailures < 0 {
		return bad("limits.breaker_failures", "must be 0 or more")
	}
	if l.JudgeCalls < 1 || l.JudgeCalls > 256 {
		return bad("limits.judge_calls", "must be 1 to 256")
	}
	if l.RewardCalls < 1 || l.RewardCalls > 4096 {
		return bad("limits.reward_calls", "must be 1 to 4096")
	}
	if l.RewardRetention < 0 || l.RewardRetention > 36_500 {
		return bad("limits.reward_retention_days", "must be 0 to 36500")
	}
	if l.DefaultMaxTokens < 0 {
		return bad("limits.default_max_tokens", "must be 0 or more")
	}
	if l.LeaveTimeout < 0 || l.LeaveTimeout > time.Minute {
		return bad("limits.leave_timeout", "must be from 0 to a minute")
	}
	if l.BufferedMemory < 3*l.Body { // a body of unknown length is copied to a buffer of twice the size
		return bad("limits.buffered_memory", "must be at least three times limits.body")
	}
	for key, value := range map[string]time.Duration{
		"header_timeout": l.HeaderTimeout, "body_timeout": l.BodyTimeout, "idle_timeout": l.IdleTimeout,
		"operation_timeout": l.OperationTimeout, "drain": l.Drain, "request_timeout": l.RequestTimeout,
		"try_timeout": l.TryTimeout, "stall_timeout": l.StallTimeout, "breaker_pause": l.BreakerPause,
	} {
		if value <= 0 {
			return bad("limits."+key, "must be above 0")
		}
	}
	return nil
}

func (s *Storage) complete() error {
	if s.DataDir == "" {
		return bad("data_dir", "must not be empty")
	}
	folder, err := filepath.Abs(s.DataDir)
	if err != nil {
		return bad("data_dir", "%w", err)
	}
	s.DataDir = folder
	if _, err := socketPath(folder); err != nil {
		return err
	}
	if s.RootKeyFile == "" {
		s.RootKeyFile = folder + ".root.key"
	}
	return nil
}

// prefixes reads addresses and ranges of them.
func prefixes(key string, texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, alone := netip.ParseAddr(text)
			if alone != nil {
				return nil, bad(key, "%q is not an address or a range such as 10.0.0.0/8", text)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

func (c *Config) level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, bad("log_level", "%q is none of debug, info, warn, error", c.LogLevel)
	}
	return level, nil
}

// A fixed key needs a restart.
type fixed struct {
	key     string
	differs func(was, is *Config) bool
	keep    func(was, is *Config)
}

// stays is a fixed key that stands at one place of a configuration.
func stays[T comparable](key string, at func(*Config) *T) fixed {
	return fixed{key, func(was, is *Config) bool {
		return *at(was) != *at(is)
	}, func(was, is *Config) { *at(is) = *at(was) }}
}

// unchangeable are the keys that need a restart. All others are put in force by a reload.
var unchangeable = []fixed{
	stays("listen", func(c *Config) *string { return &c.Listen }),
	stays("operations_listen", func(c *Config) *string { return &c.OperationsListen }),
	{
		"operations_hosts",
		func(was, is *Config) bool { return !slices.Equal(was.OperationsHosts, is.OperationsHosts) },
		func(was, is *Config) { is.OperationsHosts = was.OperationsHosts },
	},
	stays("data_dir", func(c *Config) *string { return &c.DataDir }),
	{
		"database_url", func(was, is *Config) bool { return !was.DatabaseURL.Equal(is.DatabaseURL) },
		func(was, is *Config) { is.DatabaseURL = was.DatabaseURL },
	},
	stays("root_key_file", func(c *Config) *string { return &c.RootKeyFile }),
	{
		"tls (on or off)", func(was, is *Config) bool { return (was.TLS.Cert == "") != (is.TLS.Cert == "") },
		func(was, is *Config) { is.TLS = was.TLS },
	},
	stays("fast_lane", func(c *Config) *bool { return &c.FastLane }),
	stays("log_format", func(c *Config) *string { return &c.LogFormat }),
	{
		"guard_allow", func(was, is *Config) bool { return !slices.Equal(was.GuardAllow, is.GuardAllow) },
		func(was, is *Config) { is.GuardAllow = was.GuardAllow },
	},
	{
		"stripe", func(was, is *Config) bool {
			a, b := was.Stripe, is.Stripe
			return !a.SecretKey.Equal(b.SecretKey) || !a.WebhookSecret.Equal(b.WebhookSecret) || a.MinUSD != b.MinUSD ||
				a.MaxUSD != b.MaxUSD || a.APIBase != b.APIBase
		},
		func(was, is *Config) { is.Stripe = was.Stripe },
	},
	{
		"smtp", func(was, is *Config) bool {
			a, b := was.SMTP, is.SMTP
			same := a.Password.Equal(b.Password)
			a.Password, b.Password = secret.Text{}, secret.Text{}
			return !same || a != b
		},
		func(was, is *Config) { is.SMTP = was.SMTP },
	},
	{
		"training", func(was, is *Config) bool { return !was.Training.equal(&is.Training) },
		func(was, is *Config) { is.Training = was.Training },
	},
	{
		"serving", func(was, is *Config) bool { return !was.Serving.equal(&is.Serving) },
		func(was, is *Config) { is.Serving = was.Serving },
	},
	{
		"kubernetes", func(was, is *Config) bool { return !was.Kubernetes.equal(&is.Kubernetes) },
		func(was, is *Config) { is.Kubernetes = was.Kubernetes },
	},
	stays("otlp_endpoint", func(c *Config) *string { return &c.OTLPEndpoint }),
	stays("limits.headers", func(c *Config) *Bytes { return &c.Limits.Headers }),
	stays("limits.header_timeout", func(c *Config) *time.Duration { return &c.Limits.HeaderTimeout }),
	stays("limits.body_timeout", func(c *Config) *time.Duration { return &c.Limits.BodyTimeout }),
	stays("limits.upload_rate", func(c *Config) *Bytes { return &c.Limits.UploadRate }),
	stays("limits.idle_timeout", func(c *Config) *time.Duration { return &c.Limits.IdleTimeout }),
}

// keepFixed sets the keys of is that need a restart back to their values in was, and returns those that differ, so that
// the next reload reports them again.
func keepFixed(was, is *Config) (keys []string) {
	for _, f := range unchangeable {
		if f.differs(was, is) {
			keys = append(keys, f.key)
			f.keep(was, is)
		}
	}
	return keys
}

// oneLine is the text of an error on one line, for stderr.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
