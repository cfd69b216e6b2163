package notify

import (
	"testing"
	"time"

	"sovereign/internal/store/notice"
)

func TestDelaysGrowFromFiveSecondsToAnHour(t *testing.T) {
	want := []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second, 320 * time.Second, 1280 * time.Second, time.Hour, time.Hour}
	for i, d := range want {
		if got := delay(int64(i + 1)); got != d {
			t.Errorf("after attempt %d: %v, want %v", i+1, got, d)
		}
	}
	if delay(1_000_000) != time.Hour || delay(0) != firstDelay {
		t.Error("far attempts")
	}
}

func TestAnAddressIsOneReceiverAndNoHeader(t *testing.T) {
	for text, fits := range map[string]bool{
		"ops@example.com": true, "a.b+c@example.co.uk": true, "": false, "ops": false, "@example.com": false, "ops@": false,
		"Ops <ops@example.com>": false, "<ops@example.com>": false, "a@b.c,d@e.f": false, "a@b.c;d@e.f": false,
		"a@b.c\r\nBcc: x@y.z": false, "a@b.c\nx": false, "a b@c.d": false, "\"a b\"@c.d": false, "a@b.c ": false, "ö@b.c": false,
		"a(comment)@b.c": false, "a@b.c\x00": false,
	} {
		if got := isAddress(text); got != fits {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestEveryPairOfDeliveryStatesIsInTheTable(t *testing.T) {
	all := []DeliveryState{Pending, Delivered, Failed}
	allowed := map[[2]DeliveryState]bool{
		{Pending, Pending}: true, {Pending, Delivered}: true, {Pending, Failed}: true, {Delivered, Pending}: true, {Failed, Pending}: true,
	}
	if len(deliveryStates) != len(all) {
		t.Fatalf("%d rows", len(deliveryStates))
	}
	for _, from := range all {
		for _, to := range all {
			if from.may(to) != allowed[[2]DeliveryState{from, to}] {
				t.Errorf("%s to %s", from, to)
			}
		}
	}
}

func TestAChannelHearsItsKindsAndItsOwnTests(t *testing.T) {
	c := &Channel{ID: "chan_1", Enabled: true, Kinds: []notice.Kind{notice.WalletLow}}
	off := *c
	off.Enabled = false
	for _, of := range []struct {
		c       *Channel
		kind    notice.Kind
		subject string
		wants   bool
	}{
		{c, notice.WalletLow, "ws_1", true},
		{c, notice.JobEnded, "eval_1", false},
		{&off, notice.WalletLow, "ws_1", false},
		{c, notice.Test, "chan_1", true},
		{c, notice.Test, "chan_2", false},
		{&off, notice.Test, "chan_1", true},
		{c, notice.ChannelDisabled, "chan_2", true},
		{c, notice.ChannelDisabled, "chan_1", false},
		{&off, notice.ChannelDisabled, "chan_2", false},
	} {
		if got := of.c.wants(of.kind, of.subject); got != of.wants {
			t.Errorf("%s about %s: %v", of.kind, of.subject, got)
		}
	}
}
