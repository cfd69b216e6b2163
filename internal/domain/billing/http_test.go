package billing

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A mockStripe makes sessions, one for each idempotency key, and keeps what it was asked.
type mockStripe struct {
	mu       sync.Mutex
	asked    []http.Header
	forms    []map[string][]string
	sessions map[string]string
	status   int // answered instead, when it is not 0
}

func (m *mockStripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = r.ParseForm()
	m.asked, m.forms = append(m.asked, r.Header.Clone()), append(m.forms, r.PostForm)
	if m.status != 0 {
		w.WriteHeader(m.status)
		_, _ = io.WriteString(w, `{"error":{"message":"no sk_test_key here"}}`)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if m.sessions[key] == "" {
		m.sessions[key] = fmt.Sprint("cs_", len(m.sessions))
	}
	_, _ = fmt.Fprintf(w, `{"id":%q,"url":"https://checkout.example/%s"}`, m.sessions[key], m.sessions[key])
}

// A site serves the routes of billing to the sessions of people.
type site struct {
	*ledger
	stripe   *mockStripe
	dir      *live.Directory
	sessions *live.Sessions
	handler  http.Handler
}

func newSite(t *testing.T, d *db.DB, configured bool) *site {
	t.Helper()
	s := &site{
		ledger: newLedger(t, d), stripe: &mockStripe{sessions: map[string]string{}}, dir: live.NewDirectory(), sessions: live.NewSessions(),
	}
	server := httptest.NewServer(s.stripe)
	t.Cleanup(server.Close)
	c := Config{Bounds: Bounds{5 * money.Dollar, 5000 * money.Dollar}, Base: server.URL, Site: "https://gateway.example.com"}
	if configured {
		c.SecretKey, c.WebhookSecret = secret.New("sk_test_key"), hookKey
	}
	log := slog.New(slog.DiscardHandler)
	routes := Module(Deps{Store: s.Store, Config: c, Drain: s.poster.Drain, Log: log}).Routes
	bounds := edge.NewBounds()
	bounds.Body.Store(1 << 20)
	bounds.Buffered.Set(8 << 20)
	bounds.Operations.Set(8)
	bounds.Timeout.Store(int64(time.Minute))
	router, err := api.NewRouter(api.Config{DB: d, Feed: s.feed, Bounds: bounds, Log: log}, routes)
	if err != nil {
		t.Fatal(err)
	}
	s.handler = edge.New(edge.Config{
		Directory: s.dir, Bounds: bounds, Log: log, Dashboard: &edge.Dashboard{Sessions: s.sessions, Visitor: router.Visitor},
	}, router)
	return s
}

func (s *site) do(caller tenant.Caller, method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	if caller.Workspace != "" {
		path = "/dashboard/api/w/" + string(caller.Workspace) + path
	}
	request := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	if caller.Workspace != "" {
		s.dir.PutMember(live.Member{Workspace: caller.Workspace, User: caller.User}, caller.Role)
		cookie, _ := apitest.NewSession(s.t, s.sessions, caller.User)
		request.Host, request.RemoteAddr = "localhost", "127.0.0.1:1"
		for name, value := range map[string]string{"Cookie": cookie, "Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"} {
			request.Header.Set(name, value)
		}
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

func as(ws tenant.ID, role tenant.Role) tenant.Caller {
	return tenant.Caller{Workspace: ws, User: "usr_1", Role: role}
}

// event posts an event, signed now.
func (s *site) event(kind string, object any) (int, string) {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{"id": "evt_1", "type": kind, "data": map[string]any{"object": object}})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.do(tenant.Caller{}, "POST", "/dashboard/webhooks/stripe", string(text),
		"Stripe-Signature", signed(hookKey, string(text), time.Now()))
}

func (s *site) create(caller tenant.Caller, body string, headers ...string) (made Topup) {
	s.t.Helper()
	code, text := s.do(caller, "POST", "/topups", body, headers...)
	if err := json.Unmarshal([]byte(text), &made); err != nil || code != http.StatusCreated {
		s.t.Fatalf("%d %s %v", code, text, err)
	}
	return made
}

func TestATopupIsARowAPageAndThenACredit(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		ws := s.workspace()
		owner := as(ws, tenant.Owner)
		made := s.create(owner, `{"amount_usd":25.5}`)
		if made.State != Pending || !strings.HasPrefix(made.URL, "https://checkout.example/") || made.CreatedBy != "usr_1" {
			t.Fatalf("made %+v", made)
		}
		form, header := s.stripe.forms[0], s.stripe.asked[0]
		for name, want := range map[string]string{
			"client_reference_id": made.ID, "mode": "payment", "line_items[0][price_data][unit_amount]": "2550",
			"line_items[0][price_data][currency]": "usd", "line_items[0][quantity]": "1",
			"success_url": "https://gateway.example.com/dashboard/w/" + string(ws) + "/wallet?topup=" + made.ID,
		} {
			if got := form[name]; len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if header.Get("Idempotency-Key") != made.ID || header.Get("Authorization") != "Bearer sk_test_key" {
			t.Errorf("the header is %v", header)
		}
		if s.balance(ws) != 0 {
			t.Error("a page grants money")
		}
		session := map[string]any{
			"id": "cs_0", "client_reference_id": made.ID, "amount_total": 2550, "currency": "usd", "payment_status": "unpaid", "payment_intent": nil,
		}
		for _, step := range []struct {
			kind, status string
			state        State
			balance      money.Nano
		}{
			{"checkout.session.completed", "unpaid", Processing, 0},
			{"checkout.session.async_payment_succeeded", "paid", Paid, 25_500_000_000},
			{"checkout.session.async_payment_succeeded", "paid", Paid, 25_500_000_000},
			{"checkout.session.async_payment_failed", "unpaid", Paid, 25_500_000_000},
			{"customer.created", "", Paid, 25_500_000_000},
		} {
			session["payment_status"], session["payment_intent"] = step.status, "pi_1"
			if code, text := s.event(step.kind, session); code != http.StatusOK || text != `{"received":true}`+"\n" {
				t.Fatalf("%s: %d %s", step.kind, code, text)
			}
			if got, err := s.Get(t.Context(), ws, made.ID); err != nil || got.State != step.state || s.balance(ws) != step.balance {
				t.Errorf("after %s: %s %s %v", step.kind, got.State, s.balance(ws), err)
			}
		}
		for i, step := range []struct {
			kind    string
			object  map[string]any
			balance money.Nano
		}{
			{"charge.refunded", map[string]any{"id": "ch_1", "payment_intent": "pi_1", "amount_refunded": 500, "currency": "usd"}, 20_500_000_000},
			{"charge.refunded", map[string]any{"id": "ch_1", "payment_intent": "pi_1", "amount_refunded": 500, "currency": "usd"}, 20_500_000_000},
			{"charge.dispute.created", map[string]any{"id": "dp_0", "payment_intent": "pi_1", "amount": 100, "currency": "usd", "status": "warning_needs_response"}, 20_500_000_000},
			{"charge.dispute.created", map[string]any{"id": "dp_1", "payment_intent": "pi_1", "amount": 2050, "currency": "usd", "status": "needs_response"}, 0},
			{"charge.dispute.closed", map[string]any{"id": "dp_1", "payment_intent": "pi_1", "amount": 2050, "currency": "usd", "status": "won"}, 20_500_000_000},
			{"charge.dispute.created", map[string]any{"id": "dp_1", "payment_intent": "pi_1", "amount": 2050, "currency": "usd", "status": "needs_response"}, 20_500_000_000},
			{"charge.refunded", map[string]any{"id": "ch_2", "payment_intent": "pi_of_another_product", "amount_refunded": 500, "currency": "usd"}, 20_500_000_000},
		} {
			if code, text := s.event(step.kind, step.object); code != http.StatusOK || s.balance(ws) != step.balance {
				t.Errorf("event %d, %s: %d %s, balance %s, want %s", i, step.kind, code, text, s.balance(ws), step.balance)
			}
		}
		s.proves()
	})
}

func TestForgedOldLargeAndMalformedEventsAreRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		ws := s.workspace()
		of := s.topup(ws, 25)
		text := fmt.Sprintf(`{"id":"evt_1","type":"checkout.session.completed","data":{"object":{"id":"cs_%s","client_reference_id":%q,`+
			`"amount_total":2500,"currency":"usd","payment_status":"paid","payment_intent":"pi_1"}}}`, of.ID, of.ID)
		large := `{"id":"` + strings.Repeat("x", maxEvent) + `"}`
		now := time.Now()
		for name, of := range map[string]struct {
			body, header string
			status       int
		}{
			"no signature":           {text, "", 400},
			"another secret":         {text, signed(secret.New("whsec_other"), text, now), 400},
			"an empty secret":        {text, signed(secret.New(""), text, now), 400},
			"an old one":             {text, signed(hookKey, text, now.Add(-tolerance-time.Minute)), 400},
			"a body that was edited": {strings.Replace(text, "2500", "9900", 1), signed(hookKey, text, now), 400},
			"too large":              {large, signed(hookKey, large, now), 413},
			"no JSON":                {"x", signed(hookKey, "x", now), 400},
			"an object of no shape":  {`{"type":"charge.refunded","data":{"object":[]}}`, signed(hookKey, `{"type":"charge.refunded","data":{"object":[]}}`, now), 400},
		} {
			if code, answer := s.do(tenant.Caller{}, "POST", "/dashboard/webhooks/stripe", of.body, "Stripe-Signature", of.header); code != of.status {
				t.Errorf("%s: %d %s", name, code, answer)
			}
		}
		if s.balance(ws) != 0 {
			t.Errorf("the balance is %s", s.balance(ws))
		}
		if code, _ := s.do(tenant.Caller{}, "POST", "/dashboard/webhooks/stripe", text, "Stripe-Signature", signed(hookKey, text, now)); code != 200 || s.balance(ws) != 25*money.Dollar {
			t.Errorf("the true event: %d, balance %s", code, s.balance(ws))
		}
	})
}

// Anyone can send to the address of events, and take a long time for it.
func TestSlowSendersWithoutASignatureKeepNoEventOut(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		ws := s.workspace()
		made := s.create(as(ws, tenant.Owner), `{"amount_usd":25}`)
		session := map[string]any{
			"id": "cs_0", "client_reference_id": made.ID, "amount_total": 2500, "currency": "usd", "payment_status": "paid", "payment_intent": "pi_1",
		}
		bodies, reading := make([]*io.PipeWriter, maxHooks), make(chan struct{}, maxHooks)
		var senders sync.WaitGroup
		for i := range bodies {
			var body *io.PipeReader
			body, bodies[i] = io.Pipe()
			request := httptest.NewRequestWithContext(t.Context(), "POST", "/dashboard/webhooks/stripe", body)
			senders.Go(func() { s.handler.ServeHTTP(httptest.NewRecorder(), request) })
			go func() {
				_, _ = bodies[i].Write([]byte("{")) // returns when it is read
				reading <- struct{}{}
			}()
		}
		for range bodies {
			<-reading
		}
		if code, text := s.event("checkout.session.completed", session); code != 200 || s.balance(ws) != 25*money.Dollar {
			t.Errorf("%d %s", code, text)
		}
		for _, body := range bodies {
			_ = body.Close()
		}
		senders.Wait()
	})
}

func TestOnlyAdminsPayAndOnlyForTheirWorkspace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		mine, theirs := s.workspace(), s.workspace()
		made := s.create(as(mine, tenant.Admin), `{"amount_usd":5}`)
		for name, of := range map[string]struct {
			caller       tenant.Caller
			method, path string
			body         string
			status       int
		}{
			"a member pays":           {as(mine, tenant.Member), "POST", "/topups", `{"amount_usd":5}`, 403},
			"a member reads":          {as(mine, tenant.Member), "GET", "/topups/" + made.ID, "", 403},
			"another workspace reads": {as(theirs, tenant.Owner), "GET", "/topups/" + made.ID, "", 404},
			"too little":              {as(mine, tenant.Owner), "POST", "/topups", `{"amount_usd":4.99}`, 400},
			"too much":                {as(mine, tenant.Owner), "POST", "/topups", `{"amount_usd":5000.01}`, 400},
			"no whole cents":          {as(mine, tenant.Owner), "POST", "/topups", `{"amount_usd":5.001}`, 400},
			"a negative amount":       {as(mine, tenant.Owner), "POST", "/topups", `{"amount_usd":-5}`, 400},
			"no amount":               {as(mine, tenant.Owner), "POST", "/topups", `{}`, 400},
			"a month that is none":    {as(mine, tenant.Member), "GET", "/statements/2026-13", "", 400},
			"a month without entries": {as(mine, tenant.Member), "GET", "/statements/2020-01", "", 404},
		} {
			if code, text := s.do(of.caller, of.method, of.path, of.body); code != of.status {
				t.Errorf("%s: %d %s", name, code, text)
			}
		}
		if code, text := s.do(as(theirs, tenant.Owner), "GET", "/topups", ""); code != 200 || strings.Contains(text, made.ID) {
			t.Errorf("another workspace lists: %d %s", code, text)
		}
	})
}

func TestARepeatedTopupIsOneRowAndOnePage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		owner := as(s.workspace(), tenant.Owner)
		first := s.create(owner, `{"amount_usd":5}`, "Idempotency-Key", "click")
		second := s.create(owner, `{"amount_usd":5}`, "Idempotency-Key", "click")
		if first.ID != second.ID || first.URL != second.URL || len(s.stripe.sessions) != 1 || dbtest.Count(t, d, "topups") != 1 {
			t.Errorf("%+v and %+v, %d sessions", first, second, len(s.stripe.sessions))
		}
	})
}

func TestAPaymentProviderThatRefusesFailsTheTopupAndLeaksNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		ws := s.workspace()
		for status, calls := range map[int]int{400: 1, 500: 2} {
			s.stripe.status, s.stripe.asked = status, nil
			code, text := s.do(as(ws, tenant.Owner), "POST", "/topups", `{"amount_usd":5}`)
			if code != http.StatusBadGateway || strings.Contains(text, "sk_test") || len(s.stripe.asked) != calls {
				t.Errorf("%d: %d %s after %d calls", status, code, text, len(s.stripe.asked))
			}
		}
		all, err := s.List(t.Context(), ws, 10, 0)
		if err != nil || len(all) != 2 || all[0].State != Failed || all[0].URL != "" || all[0].Failure == "" {
			t.Errorf("%+v %v", all, err)
		}
	})
}

func TestWithoutKeysNothingIsPaid(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, false)
		owner := as(s.workspace(), tenant.Owner)
		if code, _ := s.do(owner, "POST", "/topups", `{"amount_usd":5}`); code != http.StatusConflict {
			t.Errorf("a top-up: %d", code)
		}
		if code, _ := s.event("checkout.session.completed", map[string]any{}); code != http.StatusServiceUnavailable {
			t.Errorf("an event: %d", code)
		}
		if code, text := s.do(owner, "GET", "/billing", ""); code != 200 || !strings.Contains(text, `"card_payments":false`) {
			t.Errorf("billing: %d %s", code, text)
		}
	})
}

func TestAStatementListsAndSumsUp(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		ws := s.workspace()
		if _, err := s.wallets.TopUp(t.Context(), ws, tenant.Operator, 7*money.Dollar, "=HYPERLINK(1)"); err != nil {
			t.Fatal(err)
		}
		month := clock.Now().Std().Format("2006-01")
		code, text := s.do(as(ws, tenant.Member), "GET", "/statements", "")
		if code != 200 || !strings.Contains(text, `"month":"`+month+`"`) || !strings.Contains(text, `"closing_balance_usd":7`) {
			t.Errorf("%d %s", code, text)
		}
		code, text = s.do(as(ws, tenant.Member), "GET", "/statements/"+month, "")
		if code != 200 || !strings.Contains(text, `"topups_usd":7`) || !strings.Contains(text, `"kind":"topup"`) {
			t.Errorf("%d %s", code, text)
		}
		code, text = s.do(as(ws, tenant.Member), "GET", "/statements/"+month+"/export", "")
		if code != 200 || !strings.HasPrefix(text, "line,at,amount_usd") || !strings.Contains(text, ",'=HYPERLINK(1)") || !strings.Contains(text, "\nclosing,") {
			t.Errorf("%d %s", code, text)
		}
	})
}

// The credit of a demo is simulated, and its models are: real money would buy nothing, and end with the demo.
func TestADemoTakesNoCardPayments(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		ws := s.workspace()
		if _, err := db.Exec(t.Context(), d.In(ws), `UPDATE workspaces SET demo = TRUE WHERE workspace_id = $1`); err != nil {
			t.Fatal(err)
		}
		owner := tenant.Caller{Workspace: ws, User: "usr_owner", Role: tenant.Owner}
		if code, body := s.do(owner, "POST", "/topups", `{"amount_usd":25}`); code != 409 || !strings.Contains(body, "demo") {
			t.Errorf("a payment into a demo: %d %s", code, body)
		}
		if len(s.stripe.asked) != 0 || dbtest.Count(t, d, "topups") != 0 {
			t.Errorf("Stripe was asked %d times", len(s.stripe.asked))
		}
		code, body := s.do(owner, "GET", "/billing", "")
		if code != 200 || !strings.Contains(body, `"card_payments":false`) {
			t.Errorf("its billing: %d %s", code, body)
		}
	})
}

// A refund is told of as done, and may fail days later. Stripe sends its events in any order, and again.
func TestTheMoneyOfAFailedRefundOrAWonDisputeComesBackOnce(t *testing.T) {
	const intent = `"payment_intent":"pi_1","currency":"usd"`
	refund := `{"id":"re_1","amount":1000,"status":%q,` + intent + `}`
	dispute := `{"id":"dp_1","amount":2500,"status":%q,` + intent + `}`
	type told struct{ kind, object string }
	charge := told{"charge.refunded", `{"id":"ch_1","amount_refunded":1000,` + intent + `}`}
	created := told{"refund.created", fmt.Sprintf(refund, "succeeded")}
	failed := told{"refund.failed", fmt.Sprintf(refund, "failed")}
	updated := told{"charge.refund.updated", fmt.Sprintf(refund, "failed")}
	disputed := told{"charge.dispute.created", fmt.Sprintf(dispute, "needs_response")}
	won := told{"charge.dispute.closed", fmt.Sprintf(dispute, "won")}
	inquiry := told{"charge.dispute.created", fmt.Sprintf(dispute, "warning_needs_response")}
	escalated := told{"charge.dispute.updated", fmt.Sprintf(dispute, "needs_response")}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, true)
		for name, of := range map[string]struct {
			events []told
			want   money.Nano
		}{
			"refunded":                     {[]told{created, charge}, 15},
			"refunded, by the charge only": {[]told{charge, charge}, 15},
			"failed":                       {[]told{created, charge, failed, updated, failed}, 25},
			"failed, the charge only":      {[]told{charge, failed, failed}, 25},
			"failed first":                 {[]told{failed, created, charge, created, charge}, 25},
			"failed, then refunded again":  {[]told{charge, created, failed, charge, {"refund.created", `{"id":"re_2","amount":1000,"status":"pending",` + intent + `}`}}, 15},
			"won":                          {[]told{disputed, won, won}, 25},
			"won first":                    {[]told{won, disputed, won}, 25},
			"an inquiry":                   {[]told{inquiry}, 25},
			"an inquiry that became one":   {[]told{inquiry, escalated, inquiry}, 0},
		} {
			ws := s.workspace()
			made := s.create(as(ws, tenant.Owner), `{"amount_usd":25}`)
			row, err := find(t.Context(), d.In(ws), `workspace_id = $1 AND id = $2`, made.ID)
			if err != nil {
				t.Fatal(err)
			}
			pays := map[string]any{
				"id": row.SessionID, "client_reference_id": made.ID, "amount_total": 2500, "currency": "usd",
				"payment_status": "paid", "payment_intent": "pi_" + made.ID,
			}
			if code, text := s.event("checkout.session.completed", pays); code != 200 {
				t.Fatalf("%s: %d %s", name, code, text)
			}
			for _, e := range of.events {
				var object map[string]any
				if err := json.Unmarshal([]byte(strings.ReplaceAll(e.object, "pi_1", "pi_"+made.ID)), &object); err != nil {
					t.Fatal(err)
				}
				if code, text := s.event(e.kind, object); code != 200 {
					t.Errorf("%s: %s: %d %s", name, e.kind, code, text)
				}
			}
			if got := s.balance(ws); got != of.want*money.Dollar {
				t.Errorf("%s: the balance is %s, want %d", name, got, of.want)
			}
		}
		s.proves()
	})
}
