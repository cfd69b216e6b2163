package app

import (
	"log/slog"
	"testing"
)

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
