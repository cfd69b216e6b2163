package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
)

// stateLife is how long a person may take at the identity provider.
const stateLife = 10 * time.Minute

// providerTimeout bounds each request to the identity provider.
const providerTimeout = 10 * time.Second

// A Provider is an identity provider (OpenID Connect). The operator configures it. It is asked for its keys and
// addresses when somebody first signs in, so that this server starts without it.
type Provider struct {
	Name     string // as people know it
	Issuer   string
	ClientID string
	Secret   secret.Text
	Only     bool // no other way in: no passwords, no links but the operator's

	client *http.Client
	mu     sync.Mutex
	found  *oidc.Provider
}

// NewProvider returns a provider that has not been asked yet.
func NewProvider(name, issuer, clientID string, secret secret.Text, only bool) *Provider {
	return &Provider{
		Name: name, Issuer: issuer, ClientID: clientID, Secret: secret, Only: only,
		client: &http.Client{Timeout: providerTimeout},
	}
}

// Same reports whether two providers are configured alike.
func (p *Provider) Same(q *Provider) bool {
	return p != nil && q != nil && p.Name == q.Name && p.Issuer == q.Issuer && p.ClientID == q.ClientID &&
		p.Secret.Equal(q.Secret) && p.Only == q.Only
}

// discover returns what the provider says of itself. A failure is not kept: the next sign-in asks again.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	// Its keys are fetched later too, so that the context must not end with this request.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	if err != nil {
		return nil, fault.Unavailable.Because(err, "%s does not answer", p.Name).In(time.Second)
	}
	p.found = found
	return found, nil
}

func (p *Provider) oauth(found *oidc.Provider, base string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.Secret.Reveal(), Endpoint: found.Endpoint(),
		RedirectURL: base + "/dashboard/api/session/oidc/callback", Scopes: []string{oidc.ScopeOpenID, "email"},
	}
}

// A claim is what the identity provider says of a person.
type claim struct {
	issuer, subject, email string
}

// redeem exchanges a code for an identity, and checks it: signature, issuer, audience, expiry, nonce, a verified
// address.
func (p *Provider) redeem(ctx context.Context, base, code, nonce, verifier string) (claim, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return claim{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := p.oauth(found, base).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return claim{}, fault.Forbidden.Because(err, "%s did not confirm the sign-in; try again", p.Name)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return claim{}, fault.Forbidden.New("%s sent no identity", p.Name)
	}
	identity, err := found.Verifier(&oidc.Config{ClientID: p.ClientID}).Verify(ctx, raw)
	if err != nil {
		return claim{}, fault.Forbidden.Because(err, "what %s sent is not valid", p.Name)
	}
	if nonce == "" || subtle.ConstantTimeCompare([]byte(identity.Nonce), []byte(nonce)) != 1 {
		return claim{}, fault.Forbidden.New("what %s sent is of another sign-in", p.Name)
	}
	var says struct {
		Email    string `json:"email"`
		Verified any    `json:"email_verified"` // some send text
	}
	if err := identity.Claims(&says); err != nil {
		return claim{}, fault.Forbidden.Because(err, "what %s sent is not valid", p.Name)
	}
	if says.Verified != true && says.Verified != "true" || checkEmail(says.Email) != nil {
		return claim{}, fault.Forbidden.New("%s has not verified your email address", p.Name)
	}
	return claim{issuer: identity.Issuer, subject: identity.Subject, email: says.Email}, nil
}

// An OIDCSignIn is where a browser goes to sign in.
type OIDCSignIn struct {
	Object string `json:"object" enum:"oidc_sign_in"`
	URL    string `json:"url" doc:"At the identity provider; the browser opens it"`

	cookie string
}

// Headers gives the browser the cookie that it must bring back.
func (d OIDCSignIn) Headers() map[string]string { return map[string]string{"Set-Cookie": d.cookie} }

// depart begins a sign-in at the identity provider.
func (h *Handler) depart(ctx context.Context, caller tenant.Caller, _ api.None) (OIDCSignIn, error) {
	e, err := visitor(ctx, caller)
	if err != nil {
		return OIDCSignIn{}, err
	}
	options := h.options()
	if options.OIDC == nil {
		return OIDCSignIn{}, fault.Missing.New("no identity provider is configured")
	}
	if err := h.passwords.count(ctx, "", e.address); err != nil {
		return OIDCSignIn{}, err
	}
	found, err := options.OIDC.discover(ctx)
	if err != nil {
		return OIDCSignIn{}, err
	}
	state, digest := newSecret()
	nonce, _ := newSecret()
	verifier := oauth2.GenerateVerifier()
	if err := h.store.keepState(ctx, digest, nonce, verifier); err != nil {
		return OIDCSignIn{}, err
	}
	at := options.OIDC.oauth(found, options.URL).AuthCodeURL(
		state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier),
	)
	return OIDCSignIn{Object: "oidc_sign_in", URL: at, cookie: edge.StateCookie(state, stateLife)}, nil
}

// An arrival is the query with which the identity provider sends a browser back.
type arrival struct {
	Code   string `query:"code"`
	State  string `query:"state"`
	Issuer string `query:"iss" doc:"RFC 9207"`
	Error  string `query:"error"`
}

// arrive ends a sign-in at the identity provider. It is the one GET that begins something, since the provider redirects
// to it: the cookie of depart takes the place of the check of its origin. The browser is sent to the page in any case,
// which shows a refusal that stands in the fragment.
func (h *Handler) arrive(ctx context.Context, caller tenant.Caller, in arrival) (api.Document, error) {
	secret, err := h.arrived(ctx, caller, in)
	headers := map[string]string{"Location": "/dashboard/"}
	if err != nil {
		var refusal *fault.Fault
		if !errors.As(err, &refusal) {
			return api.Document{}, err
		}
		h.log.Info("a sign-in at the identity provider was refused", "request_id", edge.RequestID(ctx), "err", err)
		headers["Location"] += "#refused=" + url.QueryEscape(refusal.Message)
		return api.Document{ContentType: "text/plain; charset=utf-8", Headers: headers}, nil
	}
	headers["Set-Cookie"] = edge.SessionCookie(secret, absolute)
	return api.Document{ContentType: "text/plain; charset=utf-8", Headers: headers}, nil
}

func (h *Handler) arrived(ctx context.Context, caller tenant.Caller, in arrival) (secret string, err error) {
	e, err := visitor(ctx, caller)
	if err != nil {
		return "", err
	}
	options := h.options()
	if options.OIDC == nil {
		return "", fault.Missing.New("no identity provider is configured")
	}
	brought := edge.VisitOf(ctx).State
	if brought == "" || subtle.ConstantTimeCompare([]byte(brought), []byte(in.State)) != 1 {
		return "", fault.Forbidden.New("this sign-in was begun in another browser, or too long ago; try again")
	}
	nonce, verifier, err := h.store.takeState(ctx, in.State)
	if err != nil {
		return "", err
	}
	switch {
	case in.Error != "":
		return "", fault.Forbidden.New("%s refused the sign-in", options.OIDC.Name)
	case in.Issuer != "" && strings.TrimSuffix(in.Issuer, "/") != strings.TrimSuffix(options.OIDC.Issuer, "/"):
		return "", fault.Forbidden.New("this sign-in was begun at another identity provider")
	}
	who, err := options.OIDC.redeem(ctx, options.URL, in.Code, nonce, verifier)
	if err != nil {
		return "", err
	}
	e.method = ByOIDC
	_, secret, err = h.store.EnterByClaim(ctx, e, who)
	if err != nil {
		return "", fmt.Errorf("sign in with an identity: %w", err)
	}
	return secret, nil
}
