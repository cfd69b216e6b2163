package billing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/text/redact"
)

// A Config is how Stripe is reached, and what it is asked for. Without a secret key there are no payments.
type Config struct {
	SecretKey     secret.Text
	WebhookSecret secret.Text
	Base          string // of the API, https://api.stripe.com
	Site          string // where people reach this server, such as https://gateway.example.com
	Bounds        Bounds
}

// Enabled reports whether payments are configured.
func (c *Config) Enabled() bool { return !c.SecretKey.Empty() }

// Check refuses a configuration with which payments could be lost or forged.
func (c *Config) Check() error {
	switch {
	case c.SecretKey.Empty() && c.WebhookSecret.Empty():
		return nil
	case c.SecretKey.Empty() || c.WebhookSecret.Empty():
		return errors.New("secret_key and webhook_secret go together, and neither may be empty")
	case !strings.HasPrefix(c.Base, "https://") && !strings.HasPrefix(c.Base, "http://"):
		return errors.New("api_base must be a URL such as https://api.stripe.com")
	case !strings.HasPrefix(c.Site, "https://") && !strings.HasPrefix(c.Site, "http://"):
		return errors.New("dashboard.url is needed, so that people come back from Stripe's page")
	case c.Bounds.Min < cent || c.Bounds.Max < c.Bounds.Min || c.Bounds.Max > maxTopup:
		return fmt.Errorf("min_usd and max_usd must be from 0.01 to %s, and in this order", maxTopup)
	}
	return nil
}

// maxTopup bounds a top-up, whatever is configured: more is a typing error.
const maxTopup = 100_000 * money.Dollar

// Limits of a call to Stripe.
const (
	callTimeout = 20 * time.Second
	callTries   = 2 // with the same Idempotency-Key, so that a second one makes no second session
	maxAnswer   = 1 << 20
)

// apiVersion is the version of Stripe's API whose answers and events are read here.
const apiVersion = "2024-06-20"

// A client calls Stripe. It dials the operator's URL alone.
type client struct {
	Config
	http *http.Client
}

func newClient(c Config) *client {
	return &client{Config: c, http: &http.Client{
		Timeout:       callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// A session is a page of Stripe's at which a top-up is paid.
type session struct {
	ID  string `json:"id"`
	URL string `json:"url"`
}

// form is the request for the session of a top-up.
func (c *client) form(ws string, t *Topup) url.Values {
	back := c.Site + "/dashboard/w/" + url.PathEscape(ws) + "/wallet?topup=" + url.QueryEscape(t.ID)
	return url.Values{
		"mode":                                   {"payment"},
		"client_reference_id":                    {t.ID},
		"success_url":                            {back},
		"cancel_url":                             {back + "&cancelled=true"},
		"line_items[0][quantity]":                {"1"},
		"line_items[0][price_data][currency]":    {t.Currency},
		"line_items[0][price_data][unit_amount]": {strconv.FormatInt(cents(t.Amount), 10)},
		"line_items[0][price_data][product_data][name]": {"Wallet top-up"},
		"metadata[topup_id]":                            {t.ID},
		"payment_intent_data[metadata][topup_id]":       {t.ID},
		"payment_intent_data[metadata][workspace_id]":   {ws},
		"payment_intent_data[description]":              {"Wallet top-up " + t.ID},
	}
}

// open makes the session of a top-up. A repetition returns the same session.
func (c *client) open(ctx context.Context, ws string, t *Topup) (made session, err error) {
	body := c.form(ws, t).Encode()
	for range callTries {
		var again bool
		if made, again, err = c.post(ctx, body, t.ID); err == nil || !again || ctx.Err() != nil {
			return made, err
		}
	}
	return made, err
}

// post asks for a session once. again reports whether asking again may help.
func (c *client) post(ctx context.Context, body, key string) (made session, again bool, err error) {
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, c.Base+"/v1/checkout/sessions", strings.NewReader(body),
	)
	if err != nil {
		return made, false, fmt.Errorf("ask for a payment page: %w", err)
	}
	request.Header = http.Header{
		"Authorization": {"Bearer " + c.SecretKey.Reveal()}, "Content-Type": {"application/x-www-form-urlencoded"},
		"Idempotency-Key": {key}, "Stripe-Version": {apiVersion}, "User-Agent": {"sovereign"},
	}
	response, err := c.http.Do(request)
	if err != nil {
		return made, true, fault.Upstream.Because(err, "the payment provider could not be reached")
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return made, true, fault.Upstream.Because(err, "the payment provider broke off")
	}
	if response.StatusCode != http.StatusOK {
		cause := fmt.Errorf("status %d: %s", response.StatusCode, c.said(text))
		retry := response.StatusCode >= http.StatusInternalServerError ||
			response.StatusCode == http.StatusConflict || response.StatusCode == http.StatusTooManyRequests
		return made, retry, fault.Upstream.Because(cause, "the payment provider refused")
	}
	if err := json.Unmarshal(text, &made); err != nil || made.ID == "" || !payable(made.URL) {
		return session{}, false, fault.Upstream.Because(
			err, "the payment provider answered with something else than a page",
		)
	}
	return made, false, nil
}

// said is what Stripe says of an error, without secrets, for the log.
func (c *client) said(text []byte) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(text, &answer) // what cannot be read says nothing
	return redact.String(redact.Known(answer.Error.Message, c.SecretKey.Reveal()))
}

// payable reports whether a person may be sent to a page.
func payable(page string) bool {
	u, err := url.Parse(page)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}
