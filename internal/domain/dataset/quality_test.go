package dataset

import (
	"testing"

	"sovereign/internal/text/fold"
)

func TestAnswersAreClassifiedByWhyTheyAreDropped(t *testing.T) {
	for _, c := range []struct {
		finish, response string
		want             dropReason
	}{
		{"stop", `{"role":"assistant","content":"yes"}`, notDropped},
		{"", `{"role":"assistant","content":"yes","refusal":null,"tool_calls":[]}`, notDropped},
		{"stop", `{"content":[{"type":"text","text":"yes"}]}`, notDropped},
		{"stop", `{"content":["yes"]}`, notDropped},
		{"tool_calls", `{"content":null,"tool_calls":[{"id":"1"}]}`, notDropped},
		{"tool_calls", `{"content":"","tool_calls":[{"id":"1"}]}`, notDropped},
		{"function_call", `{"content":null,"function_call":{"name":"f"}}`, notDropped},
		{"stop", `{"content":"no","content":"yes"}`, notDropped},
		{"stop", `{"content":"half a pair \ud83d"}`, notDropped},

		{"content_filter", `{"content":"yes"}`, errored},
		{"content_filter", `{"content":null}`, errored},
		{"stop", `{"content":null,"refusal":"no"}`, errored},
		{"length", `{"content":"I","refusal":"no"}`, errored},
		{"stop", `{"content":[{"type":"refusal","refusal":"no"}]}`, errored},
		{"stop", `"text"`, errored},

		{"length", `{"content":"ye"}`, truncated},
		{"length", `{"content":null}`, truncated},
		{"length", `{"content":null,"tool_calls":[{"id":"1"}]}`, truncated},

		{"stop", `{}`, empty},
		{"stop", `{"content":null,"refusal":""}`, empty},
		{"stop", `{"content":" \n","tool_calls":null}`, empty},
		{"stop", `{"content":[]}`, empty},
		{"stop", `{"content":[{"type":"thinking","thinking":"hm"},{"type":"reasoning","text":"hm"}]}`, empty},
		{"stop", `{"content":null,"reasoning":"hm","tool_calls":[]}`, empty},
		{"stop", `{"content":7,"tool_calls":{}}`, empty},
	} {
		if got := classify(c.finish, []byte(c.response)); got != c.want {
			t.Errorf("%s %s: %v, want %v", c.finish, c.response, got, c.want)
		}
	}
}

func TestAllThatIsSaidButTheSystemPromptIsVisible(t *testing.T) {
	line, err := fold.Example(nil, []byte(`[{"role":"system","content":"s"},{"content":[{"type":"text","text":"d"}],"role":"developer"},
		{"role":"user","name":"ann","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:abc"}}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"find","arguments":"{\"q\":1}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"found"}]`),
		[]byte(`{"role":"assistant","content":"done","id":"x","reasoning":"hidden"}`), []byte(`[{"type":"function","function":{"name":"tool"}}]`), true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := visibleText(line)
	if want := "ann\nlook\ndata:abc\nfind\n{\"q\":1}\nfound\ndone\n"; err != nil || got != want {
		t.Errorf("%q, want %q: %v", got, want, err)
	}
}

// What folding cannot read is still one example, and one only.
func TestLinesThatAreEqualAreOneExample(t *testing.T) {
	odd := (&chat{messages: []turn{{"user", "a b c"}}, reply: "x y z", finish: "stop"}).exchange(t, 1)
	odd.Chain = nil
	made := curateAll(t, inMemory{odd, odd, odd}, 10)
	if made.Kept != 1 || made.Dropped.Duplicate != 2 || made.Scanned != 3 {
		t.Errorf("%+v", made.Curation)
	}
}
