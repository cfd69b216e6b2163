package peers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sovereign/internal/domain/notify"
	"sovereign/internal/store/notice"
)

func TestTheVerifierOfStandardWebhooksAcceptsOurs(t *testing.T) {
	type arrival struct {
		header http.Header
		body   []byte
	}
	arrived := make(chan arrival, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- arrival{r.Header, body}
	}))
	defer server.Close()
	c := deliver(t, notify.Mail{}, notify.NewChannel{
		Type: notify.Webhook, Address: server.URL, Kinds: []notice.Kind{notice.WalletLow},
	}, notice.Notice{Kind: notice.WalletLow, Subject: "ws", Title: "low", Text: "\"quoted\" <b>text</b>"})
	select {
	case got := <-arrived:
		verifier, err := standardwebhooks.NewWebhook(c.Secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(got.body, got.header); err != nil {
			t.Errorf("refused: %v", err)
		}
		if verifier.Verify(append(got.body, ' '), got.header) == nil {
			t.Error("an edited body is accepted")
		}
		other := got.header.Clone()
		other.Set("Webhook-Id", strings.ToUpper(got.header.Get("Webhook-Id")))
		if verifier.Verify(got.body, other) == nil {
			t.Error("another id is accepted")
		}
	case <-time.After(patience):
		t.Fatal("nothing arrived")
	}
}
