package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/store/db"
)

const hookSecret = "whsec_of_the_drill"

// sendEvent sends an event of a payment as Stripe does, and returns the status, or 0 when nobody answers.
func sendEvent(address, body string) int {
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(stamp + "." + body))
	request, err := http.NewRequest(http.MethodPost, address+"/dashboard/webhooks/stripe", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0
	}
	request.Header.Set("Stripe-Signature", "t="+stamp+",v1="+hex.EncodeToString(mac.Sum(nil)))
	response, err := (&http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// addTopup stores a top-up that waits for its payment, while no server runs.
func (p instance) addTopup(t *testing.T, n int) (event string) {
	t.Helper()
	d, err := db.Open(t.Context(), p.data, p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	ws, err := db.One[string](t.Context(), d.Across("test"), `SELECT workspace_id FROM workspaces WHERE name = 'default'`)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("topup_%d", n)
	if _, err := db.Exec(t.Context(), d.Across("test"), `
		INSERT INTO topups (workspace_id, id, amount, currency, state, session_id, url, payment_intent, transfer_id, taken,
			failure, created_by, created_at, updated_at)
		VALUES ($1, $2, $3, 'usd', 'pending', $4, '', '', '', 0, '', 'usr_1', $5, $5)`,
		ws, name, int64(10*money.Dollar), "cs_"+name, time.Now().UnixMicro()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"id":"evt_%d","type":"checkout.session.completed","data":{"object":{"id":"cs_%s",`+
		`"client_reference_id":%q,"amount_total":1000,"currency":"usd","payment_status":"paid","payment_intent":"pi_%d"}}}`,
		n, name, name, n)
}

// The server is killed while it credits a payment: before the commit, after it, before it answers. Stripe tells it
// again, until it is answered 200. The payment is credited once.
func TestDrillKillWhileAPaymentIsCreditedCreditsItOnce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		flags := []string{
			"--dashboard-url=https://gateway.example.com", "--stripe-secret-key=sk_test_drill",
			"--stripe-webhook-secret=" + hookSecret, "--stripe-api-base=http://127.0.0.1:1",
		}
		s := p.serve(t, flags...)
		before := p.wallet(t, "default").Balance
		rounds := drills(4, 60)
		for round := range rounds {
			s.stop(t)
			event := p.addTopup(t, round)
			s = p.serve(t, flags...)
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() { sendEvent(s.address(), event) })
			}
			time.Sleep(time.Duration(round*7%40) * time.Millisecond)
			s.kill()
			group.Wait()
			s = p.serve(t, flags...)
			for range 2 {
				if code := sendEvent(s.address(), event); code != http.StatusOK {
					t.Fatalf("round %d: told again, %d\n%s", round, code, s.log)
				}
			}
			want := before + money.Nano(round+1)*10*money.Dollar
			if got := p.wallet(t, "default").Balance; got != want {
				t.Fatalf("round %d: the wallet has %s, want %s", round, got, want)
			}
		}
		p.verifyLedger(t)
	})
}
