package responses_test

import (
	"strings"
	"testing"
)

func TestAnAnnotationIsFlattened(t *testing.T) {
	text, err := feed(t, recordings["cited text"].chunks...)
	const want = `{"end_index":2,"start_index":0,"title":"X","type":"url_citation","url":"https://x"}`
	if err != nil || strings.Count(text, `"annotation":`+want) != 2 || strings.Count(text, `"annotations":[`+want+`,`+want+`]`) != 3 { // in the part, the item, the response
		t.Errorf("%v %s", err, text)
	}
	text, err = translateAnswer(minimalRequest, completion(`{"content":"a","annotations":[{"type":"file","file":{"hash":"h","type":"x"}},{"type":"other","at":1}]}`, "stop", spent))
	if err != nil || !strings.Contains(text, `"annotations":[{"hash":"h","type":"file"},{"at":1,"type":"other"}]`) {
		t.Errorf("%v %s", err, text)
	}
}

func TestAnAnnotationBelongsToItsTextPart(t *testing.T) {
	for name, c := range map[string]struct{ message, want string }{
		"of nothing":       {`{"content":null,"annotations":[` + cited + `]}`, `"text":"","annotations":[{"end_index":2,"start_index":0,`},
		"before a refusal": {`{"content":"a","refusal":"b","annotations":[` + cited + `]}`, `,{"type":"refusal","refusal":"b"}]`},
	} {
		if text, err := translateAnswer(minimalRequest, completion(c.message, "stop", spent)); err != nil || strings.Count(text, "url_citation") != 1 || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v %s", name, err, text)
		}
	}
}
