package netguard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A name that the server's resolver knows from the operator's own network is refused as one that nobody knows: with the
// same error, after the same time. The names here are equally long, so that the errors can be compared.
func TestANameIsRefusedAlikeWhetherItIsPrivateOrUnknown(t *testing.T) {
	z := newZone(t, map[string][][]netip.Addr{
		"private.test": {answers("10.1.2.3")}, "looping.test": {answers(inside)}, "metadat.test": {answers("169.254.169.254")}, "nothing.test": {answers()},
	})
	broken := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no resolver answers") }
	g := New(allowPublic, WithResolver(z.Resolver()), WithRefusalTime(0))
	down := New(allowPublic, WithResolver(&net.Resolver{PreferGo: true, Dial: broken}), WithRefusalTime(0))
	for name, guard := range map[string]*Guard{
		"private.test": g, "looping.test": g, "metadat.test": g, "nothing.test": g, "unknown.test": g, "offline.test": down,
	} {
		_, err := get(t, guard.Transport(), "http://"+name+":80/")
		var blocked *Blocked
		if !errors.As(err, &blocked) || blocked.Host != name || blocked.Why == "" {
			t.Errorf("%s: %v, logged as %+v", name, err, blocked)
			continue
		}
		if want := name + " is not a public address"; err.Error() != want {
			t.Errorf("%s: the error is %q, want %q", name, err, want)
		}
	}
}

// A refusal takes a multiple of the refusal time, whatever the resolver took. A caller that leaves does not wait.
func TestARefusalTakesAMultipleOfItsTime(t *testing.T) {
	const least = 200 * time.Millisecond
	z := newZone(t, map[string][][]netip.Addr{"private.test": {answers("10.1.2.3")}})
	g := New(allowPublic, WithResolver(z.Resolver()), WithRefusalTime(least))
	for _, name := range []string{"private.test", "unknown.test"} {
		begun := time.Now()
		_, err := g.dial(t.Context(), "tcp", name+":80")
		if took := time.Since(begun); took < least {
			t.Errorf("%s was refused after %v: %v", name, took, err)
		}
	}
	forever := New(allowPublic, WithResolver(z.Resolver()), WithRefusalTime(time.Hour))
	ctx, leave := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	go func() {
		_, err := forever.dial(ctx, "tcp", "private.test:80")
		refused <- err
	}()
	for z.QueryCount("private.test") < 2 {
		time.Sleep(time.Millisecond)
	}
	leave()
	if err := <-refused; err == nil || strings.Contains(err.Error(), "10.1.2.3") {
		t.Errorf("a caller that left: %v", err)
	}
	if g := New(nil); g.refusalTime != refusalTime {
		t.Errorf("by default a refusal takes a multiple of %v", g.refusalTime)
	}
}

// The address of a URL is no secret of the server's: it is refused at once.
func TestAnAddressIsRefusedAtOnce(t *testing.T) {
	g := New(nil, WithRefusalTime(time.Hour))
	var blocked *Blocked
	if _, err := g.dial(t.Context(), "tcp", "10.1.2.3:80"); !errors.As(err, &blocked) {
		t.Errorf("%v", err)
	}
}
