package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// A caller who leaves early or gives up, or whose provider lies, pays for the provider's work, and never more than the
// hold. The log states each attack's price by the list, and what was paid for it.
func TestDrillLeavingEarlyIsPaidFor(t *testing.T) {
	t.Parallel()
	provider := startProvider(t)
	leaveTimeout := "10s" // a busy machine may take longer than the usual 2 s for an answer of half a second
	if measured() {
		leaveTimeout = "2s"
	}
	s := newInstance(t, secret.Text{}).serve(t, "--limits-leave-timeout", leaveTimeout, "--config", wireConfig(t, provider, map[string]string{
		"mock/hidden":  "mock?chunks=20&text=20&chunk_delay=20ms&in=20&out=4000",
		"claude/long":  "mock?chunks=8&text=8&hang_after=3&in=50000&out=4000",
		"mock/media":   "mock?chunks=8&text=8&hang_after=3&in=60000&out=8",
		"mock/lies":    "mock?in=20&out=100000000",
		"mock/patient": "mock?latency=1500ms&in=20&out=4000",
	}))
	report := func(attack string, list, paid money.Nano) {
		t.Logf("%-28s list price $%-12s paid $%s", attack, list, paid)
	}
	price := func(input, output int64) money.Nano { return money.Nano(input*inputPrice + output*outputPrice) }

	// leave reads a stream up to its first content, leaves, and returns what was paid.
	leave := func(name, body string) usageRow {
		c := s.callerWith(s.newWorkspace(t, name, 100*money.Dollar))
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		a, err := c.post(ctx, "/v1/chat/completions", body, func(events []string) bool {
			return strings.Contains(events[len(events)-1], `"content":"`) && !strings.Contains(events[len(events)-1], `"content":""`)
		})
		if err != nil || a.status != 200 || a.done {
			t.Fatalf("%s: %v %+v", name, err, a)
		}
		eventually(t, "the hold is free again", func() bool { return s.wallet(t, name).Held == 0 })
		row := s.usage(t, name)[a.id()]
		if paid := s.wallet(t, name).Spent; row.Outcome != "left" || row.Charged != paid {
			t.Errorf("%s: paid $%s, row %+v", name, paid, row)
		}
		return row
	}
	stream := `"stream":true`

	row := leave("hidden", chat("mock/hidden", "think, say MARK, and go on", stream))
	report("hidden reasoning", price(20, 4000), row.Charged)
	if row.Charged != price(20, 4000) {
		t.Errorf("hidden reasoning: %+v", row)
	}
	row = leave("long", chat("claude/long", strings.Repeat("word ", 50_000), stream))
	report("long prompt at Anthropic", price(50_000, 3), row.Charged)
	if row.Input != 50_000 || row.Charged < price(50_000, 1) {
		t.Errorf("input that was reported at the start: %+v", row)
	}
	row = leave("media", mediaBody("mock/media", 20))
	report("twenty images", price(60_000, 3), row.Charged)
	if row.Charged < price(60_000, 1) {
		t.Errorf("twenty images: %+v", row)
	}

	lies := chat("mock/lies", "ten words please", `"max_tokens":10`)
	c := s.callerWith(s.newWorkspace(t, "lies", 20*money.Dollar))
	if a := c.must(t, lies); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	paid := s.wallet(t, "lies").Spent
	report("10⁸ tokens for max_tokens 10", price(20, 100_000_000), paid)
	if hold := price(int64(len(lies))+200, 10); paid > hold { // a wallet with plenty is held for a token per byte
		t.Errorf("the provider lies: $%s were paid, and at most $%s held", paid, hold)
	}

	if measured() { // callers must leave between two times
		unpaid := abandon(t, s, 15)
		report("15 abandoned requests", 15*price(20, 4000), 15*price(20, 4000)-unpaid)
		if unpaid > money.Dollar/10 {
			t.Errorf("$%s of abandoned requests were not paid", unpaid)
		}
	}
	s.verifyLedger(t)
}

// mediaBody is a request with images in it.
func mediaBody(model string, images int) string {
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgo", 100) + `"}},`
	return fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":[%s{"type":"text","text":"what is it"}]}]}`,
		model, strings.Repeat(image, images))
}

// abandon sends unstreamed requests whose caller leaves shortly before the answers. It returns what was not paid.
func abandon(t *testing.T, s *process, requests int) (unpaid money.Nano) {
	t.Helper()
	c := s.callerWith(s.newWorkspace(t, "patient", 100*money.Dollar))
	var group sync.WaitGroup
	for i := range requests {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 1200*time.Millisecond)
			defer cancel()
			if a, err := c.post(ctx, "/v1/chat/completions", chat("mock/patient", fmt.Sprint("request ", i)), nil); err == nil {
				t.Errorf("request %d was answered: %d", i, a.status)
			}
		})
	}
	group.Wait()
	eventually(t, "every answer has come", func() bool { return len(s.usage(t, "patient")) == requests })
	for _, row := range s.usage(t, "patient") {
		if row.Outcome != "abandoned" || row.Cost != 20*inputPrice+4000*outputPrice || row.Charged != 0 && row.Charged != row.Cost {
			t.Errorf("%+v", row)
		}
		unpaid += row.Cost - row.Charged
	}
	if b := s.wallet(t, "patient"); b.Held != 0 || b.Abandoned != unpaid {
		t.Errorf("$%s are unpaid, and the wallet says %+v", unpaid, b)
	}
	return unpaid
}
