package peers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/billing"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/api"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/feed"
)

// stripeMock starts Stripe's mock of its API, which checks requests against Stripe's own description of it.
func stripeMock(t *testing.T) (base string, output *bytes.Buffer) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "stripe-mock")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, "github.com/stripe/stripe-mock").CombinedOutput(); err != nil {
		t.Fatalf("build stripe-mock: %v\n%s", err, text)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	ctx, stop := context.WithCancel(context.Background())
	run := exec.CommandContext(ctx, binary, "-http-addr", address)
	output = &bytes.Buffer{}
	run.Stdout, run.Stderr = output, output
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = run.Wait() })
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return "http://" + address, output
		}
		if time.Now().After(deadline) {
			t.Fatalf("stripe-mock does not start: %s", output)
		}
	}
}

func TestStripesMockAcceptsOurRequestForAPage(t *testing.T) {
	base, output := stripeMock(t)
	d := newDatabase(t)
	changes := feed.New(d, discard, nil)
	config := billing.Config{
		SecretKey: secret.New("sk_test_123"), WebhookSecret: secret.New("whsec_test"), Base: base,
		Site: "https://gateway.example.com", Bounds: billing.Bounds{Min: 5 * money.Dollar, Max: 5000 * money.Dollar},
	}
	if err := config.Check(); err != nil {
		t.Fatal(err)
	}
	routes := billing.Module(billing.Deps{
		Store: billing.NewStore(d, changes, wallet.NewStore(d, changes, funds.New())), Config: config,
		Drain: func(context.Context) error { return nil }, Log: discard,
	}).Routes
	bounds := edge.NewBounds()
	bounds.Body.Store(1 << 20)
	bounds.Buffered.Set(8 << 20)
	bounds.Operations.Set(8)
	bounds.Timeout.Store(int64(patience))
	router, err := api.NewRouter(api.Config{DB: d, Feed: changes, Bounds: bounds, Log: discard}, routes)
	if err != nil {
		t.Fatal(err)
	}
	members, sessions := live.NewDirectory(), live.NewSessions()
	members.PutMember(live.Member{Workspace: workspace, User: person.User}, tenant.Admin)
	cookie, _ := apitest.NewSession(t, sessions, person.User)
	handler := edge.New(edge.Config{
		Directory: members, Bounds: bounds, Log: discard, Dashboard: &edge.Dashboard{Sessions: sessions, Visitor: router.Visitor},
	}, router)
	path := "/dashboard/api/w/" + string(workspace) + "/topups"
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(`{"amount_usd":25.5}`))
	request.Host, request.RemoteAddr = "localhost", "127.0.0.1:1"
	for name, value := range map[string]string{"Cookie": cookie, "Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"} {
		request.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	var made billing.Topup
	if err := json.Unmarshal(recorder.Body.Bytes(), &made); err != nil || recorder.Code != http.StatusCreated {
		t.Fatalf("%d %s %v\n%s", recorder.Code, recorder.Body, err, output)
	}
	if made.State != billing.Pending || !strings.HasPrefix(made.URL, "https://checkout.stripe.com/") {
		t.Errorf("%+v", made)
	}
	if said := output.String(); !strings.Contains(said, fmt.Sprintf("client_reference_id:%s", made.ID)) || strings.Contains(said, "validation error") {
		t.Errorf("stripe-mock said %s", said)
	}
}
