package gateway

import (
	"net/http"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/live"
)

// An empty wallet is refused by the head of a request, unless the body could ask for something that costs nothing.
func TestAnEmptyWalletIsRefusedBeforeTheBodyUnlessSomethingIsFree(t *testing.T) {
	free := func(m *live.Model) { m.Price = live.Price{} }
	for name, c := range map[string]struct {
		model   func(*live.Model)
		cache   string
		prepare func(*bench)
		refused bool
	}{
		"nothing is free":         {refused: true},
		"a wallet with something": {prepare: func(b *bench) { b.funds.Credit(home, 1) }},
		"all of it is held": {prepare: func(b *bench) {
			b.funds.Credit(home, 1)
			b.funds.Hold(home, 1)
		}, refused: true},
		"a free model": {model: free},
		"a free model of a provider that is not configured": {model: func(m *live.Model) {
			free(m)
			m.Provider = &live.Provider{Name: "offered", Protocol: "test"}
		}, refused: true},
		"an own key":        {prepare: func(b *bench) { b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("k")}) }},
		"another's own key": {prepare: func(b *bench) { b.Keys.Put("ws_2", "p", &live.OwnKey{Key: secret.New("k")}) }, refused: true},
		"an own key with a fee": {prepare: func(b *bench) {
			b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("k")})
			b.Apply(Settings{OwnKeyFee: 1})
		}, refused: true},
		"a cache that was paid for":     {cache: "on", prepare: func(b *bench) { b.funds.Posted(home, "", 0, 5); b.funds.Credit(home, 5) }},
		"a cache that is off":           {cache: "off", prepare: func(b *bench) { b.funds.Posted(home, "", 0, 5); b.funds.Credit(home, 5) }, refused: true},
		"a cache that cannot be filled": {cache: "on", refused: true},
		"a workspace's cache, paid for": {prepare: func(b *bench) {
			b.funds.Posted(home, "", 0, 5)
			b.funds.Credit(home, 5)
			b.Workspaces.Put(home, live.Settings{Cache: true})
		}},
	} {
		if c.model == nil {
			c.model = func(*live.Model) {}
		}
		b := newBench(t, model("m", c.model))
		if b.funds.Credit(home, 0); c.prepare != nil {
			c.prepare(b)
		}
		err := b.checkFunds(b.t.Context(), home, c.cache)
		if refused := err != nil; refused != c.refused || refused && fault.From(err).Status != http.StatusPaymentRequired {
			t.Errorf("%s: %v", name, err)
		}
	}
}
