package live

import (
	"net/netip"
	"testing"

	"sovereign/internal/base/tenant"
)

func TestModelNamesAllowThemselvesAndWhatBeginsWithAWildcard(t *testing.T) {
	for _, c := range []struct {
		allowed ModelNames
		name    string
		want    bool
	}{
		{nil, "gpt-4o", true},
		{ModelNames{}, "gpt-4o", true},
		{ModelNames{"gpt-4o"}, "gpt-4o", true},
		{ModelNames{"gpt-4o"}, "gpt-4o-mini", false},
		{ModelNames{"gpt-4o*"}, "gpt-4o-mini", true},
		{ModelNames{"gpt-4o*"}, "gpt-4o", true},
		{ModelNames{"gpt-4o*"}, "gpt-4", false},
		{ModelNames{"sim/chat", "claude*"}, "claude-x", true},
		{ModelNames{"*"}, "anything", true},
		{ModelNames{"sim/chat"}, "", false},
	} {
		if got := c.allowed.Allow(c.name); got != c.want {
			t.Errorf("%q of %q: %v", c.name, c.allowed, got)
		}
	}
}

func TestAnAddressMustBeInARange(t *testing.T) {
	some := AddressRange{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for address, want := range map[string]bool{"10.1.2.3": true, "11.0.0.1": false, "2001:db8::1": true, "::1": false} {
		if got := some.Allow(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	if some.Allow(netip.Addr{}) || !AddressRange(nil).Allow(netip.Addr{}) {
		t.Error("a socket without an address is in no range, and allowed where there is none")
	}
}

func TestLimitsAreOfTheKeyAndOfItsWorkspace(t *testing.T) {
	a, caller := NewLimits(), &tenant.Caller{Workspace: "ws_1", Key: "key_1"}
	if !a.None() || a.Expiring() {
		t.Error("there are limits in the beginning")
	}
	of, all := &Limits{Concurrency: 1}, &Limits{Concurrency: 2, ExpiresAt: 5}
	a.Put("key_1", of)
	a.Put("ws_1", all)
	if key, ws := a.Of(caller); key != of || ws != all || a.None() || !a.Expiring() {
		t.Error(key, ws)
	}
	a.Put("key_1", nil)
	if key, ws := a.Of(caller); key != nil || ws != all {
		t.Error(key, ws)
	}
	a.Replace(map[string]*Limits{"key_1": of})
	if key, ws := a.Of(caller); key != of || ws != nil {
		t.Error(key, ws)
	}
}

// A grant ends when its key would be refused, whatever the reason, and not before.
func TestAGrantEndsWithItsKeyOrItsMember(t *testing.T) {
	for name, change := range map[string]func(*Directory){
		"revoked":  func(d *Directory) { d.DropKey(digest(1)) },
		"removed":  func(d *Directory) { d.DropMember(ann) },
		"replaced": func(d *Directory) { d.Replace(nil, nil) },
	} {
		d := filled(3)
		grant := d.Grant(digest(1))
		d.DropKey(digest(2)) // another
		d.PutMember(ann, tenant.Member)
		if grant.Ended() {
			t.Errorf("%s: it ended before", name)
		}
		if change(d); !grant.Ended() {
			t.Errorf("%s: it did not end", name)
		}
	}
	if new(Grant).Ended() {
		t.Error("the zero grant ended")
	}
}
