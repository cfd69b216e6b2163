package gateway

import (
	"context"
	"errors"
	"testing"

	"sovereign/internal/live"
	"sovereign/internal/plane/gateway/request"
)

const (
	numbers = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-2.5]}],"usage":{"prompt_tokens":2,"total_tokens":2}}`
	packed  = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAIMA="}],"usage":{"prompt_tokens":2,"total_tokens":2}}`
)

func embedder(id string) *live.Model {
	return model(id, func(m *live.Model) { m.Kind, m.MaxOutput = live.Embedding, 0 })
}

func TestEmbeddingsComeInTheEncodingThatWasAskedFor(t *testing.T) {
	b := newBench(t, embedder("e"))
	for asked, want := range map[string][2]string{ // when numbers come, and when base64 comes
		``:                            {numbers, numbers},
		`,"encoding_format":null`:     {numbers, numbers},
		`,"encoding_format":"float"`:  {numbers, numbers},
		`,"encoding_format":"base64"`: {packed, packed},
		`,"encoding_format":"hex"`:    {numbers, packed}, // the provider's own
		`,"embedding_type":"base64"`:  {numbers, packed}, // Jina's name for it
		`,"output_dtype":"int8"`:      {numbers, packed},
		`,"encoding_format":"float","output_dtype":"int8"`: {numbers, packed},
	} {
		for i, answer := range []string{numbers, packed} {
			b.answer = whole(answer)
			w, err := b.askFrom(context.Background(), request.Embeddings, `{"model":"e","input":"two words"`+asked+`}`)
			if err != nil || w.Body.String() != want[i] {
				t.Errorf("asked for %s: %v\n%s\nbecame %s", asked, err, answer, w.Body)
			}
		}
	}
	if charged := b.settled(); charged.Usage.Input != 2 || charged.Counted {
		t.Errorf("%+v", charged)
	}
}

// A cached answer has the encoding of its own request.
func TestTheCacheTellsEncodingsApart(t *testing.T) {
	b := newBench(t, embedder("e"))
	b.answer = whole(numbers)
	for range 2 {
		for asked, want := range map[string]string{"float": numbers, "base64": packed} {
			w, err := b.askWith(request.Embeddings, home, "on", `{"model":"e","input":"x","encoding_format":"`+asked+`"}`)
			if err != nil || w.Body.String() != want {
				t.Errorf("%s: %v %s", asked, err, w.Body)
			}
		}
	}
	if len(b.sent) != 2 {
		t.Errorf("the provider was asked %d times", len(b.sent))
	}
}

func TestRecodedVectorsCountAgainstTheBufferedMemory(t *testing.T) {
	b := newBench(t, embedder("e"))
	b.Bounds.Buffered.Set(int64(len(packed)))
	b.answer = whole(packed)
	if _, err := b.askFrom(context.Background(), request.Embeddings, `{"model":"e","input":"x"}`); !errors.Is(err, errBufferFull) {
		t.Errorf("there is no room for it: %v", err)
	}
	if spent := b.funds.Balance(home).Spent; spent != 0 {
		t.Errorf("$%s were charged", spent)
	}
}
