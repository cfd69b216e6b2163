package app

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
)

// The whole road of a named hold: set aside, spent by a request to a model, shown, proven, and released.
func TestAnOperatorSeesWhatANamedHoldHasLeft(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		ctx, holds := t.Context(), i.state.poster.Holds
		ws, _ := addCallers(t, i)
		if err := i.state.feed.Change(ctx, func(tx *db.Tx) error {
			return holds.Open(ctx, tx, ws, "rs_1", "reward", 2*money.Dollar)
		}); err != nil {
			t.Fatal(err)
		}
		ask := func() error {
			_, err := i.plane.gateway.Complete(ctx, &infer.Request{
				Workspace: ws, Origin: "rs_1", Hold: "rs_1", Model: "sim/chat", MaxTokens: 20,
				Body: []byte(`{"model":"sim/chat","messages":[{"role":"user","content":"Is it good?"}]}`),
			})
			return err
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		spent, err := holds.Spent(ctx, ws, "rs_1")
		if err != nil || spent == 0 {
			t.Fatalf("%s: %v", spent, err)
		}
		want := `"holds":[{"id":"rs_1","kind":"reward","amount_usd":2,"spent_usd":` + spent.String() + `,"left_usd":` + (2*money.Dollar - spent).String() + `}]`
		if text := i.walletShow(t, true); !strings.Contains(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
		if text, want := i.walletShow(t, false), "rs_1: $"+(2*money.Dollar-spent).String()+" of $2 left\n"; !strings.Contains(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
		if err := i.state.feed.Change(ctx, func(tx *db.Tx) error { return holds.End(ctx, tx, ws, "rs_1") }); err != nil {
			t.Fatal(err)
		}
		var ended *infer.HoldSpent
		if err := ask(); !errors.As(err, &ended) || !ended.Ended {
			t.Errorf("after its end: %v", err)
		}
		if err := i.state.poster.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		proof, err := i.domains.wallets.Verify(ctx)
		if b := wallettest.Shown(t, i.domains.wallets, ws); err != nil || !proof.OK || b.Held != 0 || b.Balance != 25*money.Dollar-spent {
			t.Errorf("%v %+v; %+v", err, proof, b)
		}
		if text := i.walletShow(t, true); !strings.Contains(text, `"holds":[]`) {
			t.Error(text)
		}
	})
}

// walletShow runs admin wallet show.
func (i *instance) walletShow(t *testing.T, asJSON bool) string {
	t.Helper()
	server := httptest.NewServer(i.routers.operators)
	defer server.Close()
	var out bytes.Buffer
	a := &admin{out: &out, client: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}}}
	c := walletShow{}
	c.JSON, c.Workspace = asJSON, "one"
	if err := c.Run(a); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
