package signin

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// An identityProvider speaks OpenID Connect as a real one does: discovery, keys, codes that work once with their PKCE
// verifier, and tokens signed with RS256. A test changes what it says.
type identityProvider struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu     sync.Mutex
	codes  map[string]url.Values // by code: the request for it
	change func(claims map[string]any)
	signer *rsa.PrivateKey // nil for key
}

func newProvider(t *testing.T) *identityProvider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &identityProvider{key: key, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		b64 := base64.RawURLEncoding
		answer(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one",
			"n": b64.EncodeToString(key.N.Bytes()), "e": b64.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// approve is what the person does at the provider: it returns the code that the browser brings back.
func (p *identityProvider) approve(t *testing.T, at string) (code, state string) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil || !strings.HasPrefix(at, p.URL+"/authorize?") {
		t.Fatal(at, err)
	}
	asked := u.Query()
	for _, name := range []string{"state", "nonce", "code_challenge"} {
		if len(asked.Get(name)) < 43 {
			t.Errorf("%s is %q", name, asked.Get(name))
		}
	}
	if asked.Get("code_challenge_method") != "S256" || asked.Get("redirect_uri") != "https://models.test/dashboard/api/session/oidc/callback" {
		t.Errorf("%v", asked)
	}
	code = rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[code] = asked
	return code, asked.Get("state")
}

// token exchanges a code, once, if the verifier is the one of its challenge.
func (p *identityProvider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, ok := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims := map[string]any{
		"iss": p.URL, "aud": "client", "sub": "subject of " + ownerEmail, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"nonce": asked.Get("nonce"), "email": ownerEmail, "email_verified": true,
	}
	if p.change != nil {
		p.change(claims)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": p.sign(claims)})
}

func (p *identityProvider) sign(claims map[string]any) string {
	signer := p.key
	if p.signer != nil {
		signer = p.signer
	}
	body, _ := json.Marshal(claims)
	b64 := base64.RawURLEncoding
	text := b64.EncodeToString([]byte(`{"alg":"RS256","kid":"one","typ":"JWT"}`)) + "." + b64.EncodeToString(body)
	sum := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, signer, crypto.SHA256, sum[:])
	return text + "." + b64.EncodeToString(signature)
}

// A traveller is a browser that signs in at a provider.
type traveller struct {
	*browser
	state string // the cookie
}

// travel returns a browser that remembers the cookie of its sign-in.
func (s *site) travel() *traveller {
	tr := &traveller{browser: s.browser()}
	tr.change = func(r *http.Request) {
		if tr.state != "" {
			r.AddCookie(&http.Cookie{Name: "__Host-sovereign-oidc", Value: tr.state})
		}
	}
	return tr
}

// depart returns where the browser is sent.
func (tr *traveller) depart(t *testing.T) string {
	t.Helper()
	got := tr.do(t, "POST", "/session/oidc", "")
	var to OIDCSignIn
	if err := json.Unmarshal(got.Body.Bytes(), &to); err != nil || got.Code != 200 {
		t.Fatal(got.Code, got.Body)
	}
	for _, cookie := range got.Result().Cookies() {
		if cookie.Name == "__Host-sovereign-oidc" {
			if !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.MaxAge != 600 {
				t.Errorf("%+v", cookie)
			}
			tr.state = cookie.Value
		}
	}
	return to.URL
}

// arrive brings a code back, and returns why it was refused, or nothing.
func (tr *traveller) arrive(t *testing.T, code, state string, more ...string) (refused string) {
	t.Helper()
	query := url.Values{"code": {code}, "state": {state}, "session_state": {"of the provider"}}
	for i := 0; i < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	got := tr.do(t, "GET", "/session/oidc/callback?"+query.Encode(), "")
	to := got.Header().Get("Location")
	if got.Code != http.StatusSeeOther || !strings.HasPrefix(to, "/dashboard/") {
		t.Fatalf("%d %s %s", got.Code, to, got.Body)
	}
	_, fragment, _ := strings.Cut(to, "#refused=")
	refused, _ = url.QueryUnescape(fragment)
	if (refused == "") != tr.browser.state(t).SignedIn {
		t.Errorf("refused because of %q, and signed in: %v", refused, tr.browser.state(t).SignedIn)
	}
	return refused
}

// enter goes the whole way.
func (tr *traveller) enter(t *testing.T, p *identityProvider) string {
	t.Helper()
	code, state := p.approve(t, tr.depart(t))
	return tr.arrive(t, code, state)
}

func eachProvider(t *testing.T, only bool, test func(t *testing.T, s *site, p *identityProvider)) {
	t.Helper()
	eachSite(t, func(t *testing.T, s *site) {
		p := newProvider(t)
		s.options.Store(&Options{URL: "https://models.test", OIDC: NewProvider("Corp", p.URL, "client", secret.New("hush"), only)})
		test(t, s, p)
	})
}

func TestAMemberSignsInAtTheIdentityProvider(t *testing.T) {
	eachProvider(t, false, func(t *testing.T, s *site, p *identityProvider) {
		tr := s.travel()
		if ways := tr.browser.state(t).SignIn; ways.OIDC == nil || ways.OIDC.Name != "Corp" || !ways.Password {
			t.Errorf("%+v", ways)
		}
		if refused := tr.enter(t, p); refused != "" {
			t.Fatal(refused)
		}
		if state := tr.browser.state(t); state.Email != ownerEmail {
			t.Errorf("%+v", state)
		}
		if n := dbtest.Count(t, s.db, "sessions WHERE method = 'oidc'"); n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
}

func TestWhatTheIdentityProviderSaysIsChecked(t *testing.T) {
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	eachProvider(t, false, func(t *testing.T, s *site, p *identityProvider) {
		for name, c := range map[string]struct {
			change func(map[string]any)
			signer *rsa.PrivateKey
		}{
			"another nonce":      {func(c map[string]any) { c["nonce"] = "x" }, nil},
			"no nonce":           {func(c map[string]any) { delete(c, "nonce") }, nil},
			"another audience":   {func(c map[string]any) { c["aud"] = "other" }, nil},
			"another issuer":     {func(c map[string]any) { c["iss"] = "https://evil.test" }, nil},
			"an old token":       {func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }, nil},
			"an unverified mail": {func(c map[string]any) { c["email_verified"] = false }, nil},
			"nothing verified":   {func(c map[string]any) { delete(c, "email_verified") }, nil},
			"no mail":            {func(c map[string]any) { delete(c, "email") }, nil},
			"a stranger":         {func(c map[string]any) { c["email"], c["sub"] = "stranger@nowhere.test", "2" }, nil},
			"another key":        {nil, stranger},
		} {
			p.change, p.signer = c.change, c.signer
			if refused := s.travel().enter(t, p); refused == "" {
				t.Errorf("%s is accepted", name)
			}
		}
		p.change, p.signer = func(c map[string]any) { c["email_verified"] = "true" }, nil
		if refused := s.travel().enter(t, p); refused != "" {
			t.Error(refused)
		}
	})
}

func TestASignInBelongsToItsBrowserAndEndsOnce(t *testing.T) {
	eachProvider(t, false, func(t *testing.T, s *site, p *identityProvider) {
		victim, attacker := s.travel(), s.travel()
		code, state := p.approve(t, attacker.depart(t))
		if victim.arrive(t, code, state) == "" {
			t.Error("a browser without the cookie ends another's sign-in")
		}
		victim.depart(t)
		if victim.arrive(t, code, state) == "" {
			t.Error("a browser with another state ends another's sign-in")
		}
		if attacker.arrive(t, code, "x") == "" {
			t.Error("a state that was not sent is accepted")
		}
		if attacker.arrive(t, code, state, "iss", "https://evil.test") == "" {
			t.Error("the answer of another provider is accepted")
		}
		again := s.travel()
		code, state = p.approve(t, again.depart(t))
		if refused := again.arrive(t, code, state, "iss", p.URL); refused != "" {
			t.Fatal(refused)
		}
		thief := s.travel()
		thief.state = again.state
		if thief.arrive(t, code, state) == "" {
			t.Error("a code works twice")
		}
		if refused := s.travel(); refused.arrive(t, "", "", "error", "access_denied") == "" {
			t.Error("a refusal of the provider signs in")
		}
	})
}

// An address that the provider gives to another account does not open what was the first one's.
func TestAnAccountIsBoundToItsPerson(t *testing.T) {
	eachProvider(t, false, func(t *testing.T, s *site, p *identityProvider) {
		if refused := s.travel().enter(t, p); refused != "" {
			t.Fatal(refused)
		}
		p.change = func(c map[string]any) { c["sub"] = "another" }
		if refused := s.travel().enter(t, p); !strings.Contains(refused, "another account") {
			t.Errorf("another account with the same address: %q", refused)
		}
		p.change = func(c map[string]any) { c["email"] = "renamed@one.test" }
		if refused := s.travel().enter(t, p); refused != "" {
			t.Errorf("the same account with another address: %q", refused)
		}
	})
}

func TestSingleSignOnAloneClosesEveryOtherWayIn(t *testing.T) {
	eachProvider(t, true, func(t *testing.T, s *site, p *identityProvider) {
		b := s.browser()
		if ways := b.state(t).SignIn; ways.Password || ways.Link || ways.OIDC == nil {
			t.Errorf("%+v", ways)
		}
		b.wants(t, "POST", "/session/password", quoted("email", ownerEmail, "password", good), 403)
		b.wants(t, "POST", "/session/link", quoted("token", s.link(t, Reset, ownerEmail)), 403)
		b.wants(t, "POST", "/session/link", quoted("token", s.link(t, SignIn, ownerEmail)), 200) // the operator's
		b.wants(t, "PUT", "/password", quoted("new", good), 403)
		made := b.wants(t, "POST", "/w/"+string(s.ws)+"/invitations", quoted("email", "new@one.test", "role", "member"), 201)
		if !strings.Contains(made, `"url":"https://models.test/dashboard/"`) {
			t.Errorf("an invitation shows a link: %s", made)
		}
		if _, err := s.workspaces.AddMember(t.Context(), s.ws, tenant.Operator, "two@one.test", tenant.Member); err != nil {
			t.Fatal(err)
		}
		two, err := db.One[string](t.Context(), s.db.Across("test"), `SELECT id FROM users WHERE email = 'two@one.test'`)
		if err != nil {
			t.Fatal(err)
		}
		b.wants(t, "POST", "/w/"+string(s.ws)+"/members/"+two+"/link", "", 403)
		p.change = func(c map[string]any) { c["email"], c["sub"] = "new@one.test", "new" }
		tr := s.travel()
		if refused := tr.enter(t, p); refused != "" {
			t.Fatal(refused)
		}
		if state := tr.browser.state(t); len(state.Workspaces) != 1 || state.Workspaces[0].Role != tenant.Member {
			t.Errorf("who was invited is a member: %+v", state)
		}
	})
}

func TestAnIdentityProviderThatDoesNotAnswerIsUnavailableAndAskedAgain(t *testing.T) {
	eachProvider(t, false, func(t *testing.T, s *site, p *identityProvider) {
		p.Config.Handler, p.change = http.NotFoundHandler(), nil
		s.browser().wants(t, "POST", "/session/oidc", "", 503)
	})
}
