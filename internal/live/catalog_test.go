package live

import (
	"strings"
	"testing"
)

// A caller that knows a model by its provider's name is told its id here.
func TestAMissingModelNamesTheOneThatWasMeant(t *testing.T) {
	idle, used := &Provider{Name: "azure"}, &Provider{Name: "openai", Configured: true}
	c := NewCatalog([]*Provider{idle, used}, []*Model{
		{ID: "azure/gpt-x", Provider: idle}, {ID: "openai/gpt-x", Provider: used}, {ID: "azure/own", Provider: idle}, {ID: "bare", Provider: used},
	})
	for id, want := range map[string]string{
		"gpt-x": `"openai/gpt-x"?`, "GPT-X": `"openai/gpt-x"?`, "own": `"azure/own"?`, "Bare": `"bare"?`, "OpenAI/gpt-x": "no provider", "openai/GPT-x": `"openai/gpt-x"?`, "gpt": "does not exist", "x": "does not exist",
	} {
		if m, err := c.Find(id); m != nil || err == nil || !strings.HasSuffix(err.Error(), want) && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v %v", id, m, err)
		}
	}
}
