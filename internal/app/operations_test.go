package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"sovereign/internal/base/panics"
	"sovereign/internal/store/module"

	"sovereign/internal/plane/edge"
)

// A page that rebinds its own name to this machine cannot read what is served for operators.
func TestTheOperationsListenerIsServedForItsOwnHostsAlone(t *testing.T) {
	c := &Config{OperationsListen: "metrics.test:9090", OperationsHosts: []string{"Node-7.internal"}}
	server := httptest.NewServer(ownHosts(c.operationsHosts(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "secret")
	})))
	defer server.Close()
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:9090": 200, "127.9.9.9": 200, "[::1]:9090": 200, "localhost": 200, "LOCALHOST:1": 200, "localhost.": 200,
		"metrics.test": 200, "metrics.test:80": 200, "node-7.internal": 200, "NODE-7.INTERNAL:9090": 200,
		"evil.test": 403, "evil.test:9090": 403, "localhost.evil.test": 403, "127.0.0.1.evil.test": 403, "10.0.0.1": 403, "0.0.0.0": 403,
		"evil.test#localhost": 403, "xlocalhost": 403, "node-7.internal.evil.test": 403,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want && response.StatusCode != http.StatusBadRequest || want != 200 && string(body) == "secret" {
			t.Errorf("%q: %d %s, want %d", host, response.StatusCode, body, want)
		}
	}
}

// A scraper that uses the address of the machine reaches the listener by it.
func TestTheAddressOfAConnectionIsAnOwnHost(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 9090}
	if !edge.IsOwnHost("10.1.2.3", local) || edge.IsOwnHost("10.1.2.4", local) || edge.IsOwnHost("10.1.2.3", nil) || edge.IsOwnHost("evil.test", local) {
		t.Error("not the address of the connection alone")
	}
}

// A background loop that panics is started again, later each time, until the server stops.
func TestALoopThatPanicsIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		i, before, begun := &instance{log: slog.New(slog.DiscardHandler)}, panics.Count(), time.Now()
		var starts []time.Duration
		i.keepRunning(ctx, module.Loop{Name: "a loop", Run: func(context.Context) {
			if starts = append(starts, time.Since(begun)); len(starts) == 4 {
				stop()
			}
			panic("a poisonous row")
		}})
		if n := panics.Count() - before; n != 4 || len(starts) != 4 || starts[3] != (1+2+4)*time.Second {
			t.Errorf("%d panics, starts at %v", n, starts)
		}
	})
}

func TestTheEnvironmentNamesTheTracedService(t *testing.T) {
	for _, c := range []struct{ name, attributes, want, region string }{
		{"", "", "sovereign", ""},
		{"gateway-eu", "", "gateway-eu", ""},
		{"", "service.name=other,cloud.region=eu", "other", "eu"},
		{"gateway-eu", "service.name=other", "gateway-eu", ""},
		{"gateway-eu", "no attribute", "gateway-eu", ""}, // which is reported, and nothing more
	} {
		t.Setenv("OTEL_SERVICE_NAME", c.name)
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", c.attributes)
		got := map[string]string{}
		for _, a := range tracedService(t.Context(), slog.New(slog.DiscardHandler)).Attributes() {
			got[string(a.Key)] = a.Value.String()
		}
		if got["service.name"] != c.want || got["service.version"] == "" || got["cloud.region"] != c.region {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
