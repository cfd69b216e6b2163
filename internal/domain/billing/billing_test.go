package billing

import (
	"slices"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

func TestEveryPairOfStatesIsInTheTable(t *testing.T) {
	all := []State{Pending, Processing, Paid, Failed, Expired}
	allowed := map[[2]State]bool{
		{Pending, Processing}: true, {Pending, Paid}: true, {Pending, Failed}: true, {Pending, Expired}: true,
		{Processing, Paid}: true, {Processing, Failed}: true, {Failed, Paid}: true, {Expired, Paid}: true,
	}
	if len(transitions) != len(all) {
		t.Fatalf("%d states have a row, of %d", len(transitions), len(all))
	}
	for _, from := range all {
		for _, to := range all {
			if from.may(to) != allowed[[2]State{from, to}] {
				t.Errorf("%s to %s: %v", from, to, from.may(to))
			}
		}
	}
}

func TestAnAmountIsWithinItsBoundsInWholeCents(t *testing.T) {
	b := Bounds{Min: 5 * money.Dollar, Max: 5000 * money.Dollar}
	for amount, fits := range map[money.Nano]bool{
		5 * money.Dollar: true, 5000 * money.Dollar: true, 12_340_000_000: true, 5*money.Dollar - cent: false,
		5000*money.Dollar + cent: false, 12_345_000_000: false, 0: false, -5 * money.Dollar: false,
	} {
		if got := b.check(amount) == nil; got != fits {
			t.Errorf("%s: %v", amount, got)
		}
	}
}

func TestReversalsNeverTakeMoreThanWasPaid(t *testing.T) {
	const huge = 1 << 62
	for _, of := range []struct {
		all  []amount
		want money.Nano
	}{
		{nil, 0},
		{[]amount{{ofCharge, 3}, {ofDispute, 4}}, 7},
		{[]amount{{ofCharge, 6}, {ofDispute, 6}}, 10},
		{[]amount{{ofDispute, huge}, {ofDispute, huge}, {ofCharge, huge}, {ofRefund, huge}, {ofRefund, huge}}, 10},
		{[]amount{{ofDispute, -5}, {ofCharge, 2}}, 2},
		{[]amount{{ofCharge, 4}, {ofRefund, 3}, {ofRefund, 1}}, 4},
		{[]amount{{ofCharge, 4}, {ofFailure, 3}}, 1},
		{[]amount{{ofFailure, huge}, {ofDispute, 5}}, 5},
	} {
		if got := reversed(10, of.all); got != of.want {
			t.Errorf("%v: %d, want %d", of.all, got, of.want)
		}
	}
}

func TestPaymentsNeedBothSecretsAndAWayBack(t *testing.T) {
	whole := Config{
		SecretKey: secret.New("sk_test"), WebhookSecret: secret.New("whsec_test"), Base: "https://api.stripe.com",
		Site: "https://gateway.example.com", Bounds: Bounds{5 * money.Dollar, 10 * money.Dollar},
	}
	if err := whole.Check(); err != nil || !whole.Enabled() {
		t.Fatalf("a whole configuration: %v", err)
	}
	if none := (&Config{}); none.Check() != nil || none.Enabled() {
		t.Error("no configuration is no payments")
	}
	for name, spoil := range map[string]func(*Config){
		"no secret key":          func(c *Config) { c.SecretKey = secret.Text{} },
		"an empty secret key":    func(c *Config) { c.SecretKey = secret.New("") },
		"no webhook secret":      func(c *Config) { c.WebhookSecret = secret.Text{} },
		"an empty hook's secret": func(c *Config) { c.WebhookSecret = secret.New("") },
		"no site":                func(c *Config) { c.Site = "" },
		"no API":                 func(c *Config) { c.Base = "" },
		"bounds in disorder":     func(c *Config) { c.Bounds.Max = money.Dollar },
		"a bound of 0":           func(c *Config) { c.Bounds.Min = 0 },
	} {
		c := whole
		if spoil(&c); c.Check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestACellIsNoFormula(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain": "plain", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@x": "'@x", "\tx": "'\tx", "\rx": "'\rx", "a=b": "a=b",
	} {
		if got := cell(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if !slices.Equal(csvHeader[:3], []string{"line", "at", "amount_usd"}) {
		t.Errorf("the columns are %v", csvHeader)
	}
}
