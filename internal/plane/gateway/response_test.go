package gateway

import (
	"strings"
	"testing"

	"sovereign/internal/plane/gateway/request"
)

func TestStreamsAskProxiesNotToBufferThem(t *testing.T) {
	b := newBench(t)
	for range 2 { // from the provider, and from the cache
		b.answer = events(strings.NewReader(providerStream))
		w, err := b.askWith(request.Chat, home, "on", streamRequest)
		if err != nil || w.Header().Get("X-Accel-Buffering") != "no" {
			t.Errorf("%v %v", err, w.Header())
		}
	}
	b.answer = whole(good)
	if w, err := b.ask(plainRequest); err != nil || w.Header().Get("X-Accel-Buffering") != "" {
		t.Errorf("a whole answer: %v %v", err, w.Header())
	}
}
