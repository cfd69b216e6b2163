package answer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// same is a redact that leaves texts as they are.
func same(text string) string { return text }

func TestAnErrorsTextsAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 2000)
	for _, body := range []string{
		`{"error":{"message":"` + long + `","param":"` + long + `","code":"` + long + `"}}`,
		`{"detail":["` + strings.Repeat(`word","`, 2000) + `"]}`,
		`{"code":"` + strings.Repeat("x", 65) + `","message":"` + long,
		long,
	} {
		e := ReadError([]byte(body), same)
		if len(e.Message) > maxMessage+len("…") || len(e.Param) > maxParam+len("…") || e.Code != "" || !utf8.ValidString(e.Message+e.Param) {
			t.Errorf("%.40s: %d and %d bytes, code %q", body, len(e.Message), len(e.Param), e.Code)
		}
	}
}

func TestSecretsAreRemovedBeforeATextIsCut(t *testing.T) {
	body := strings.Repeat("x", maxMessage-3) + "secret"
	e := ReadError([]byte(body), func(text string) string { return strings.ReplaceAll(text, "secret", "[redacted]") })
	if strings.Contains(e.Message, "sec") || !strings.HasSuffix(e.Message, "[re…") {
		t.Errorf("it ends with %q", e.Message[maxMessage-10:])
	}
}

func FuzzReadError(f *testing.F) {
	for _, body := range []string{
		`{"error":{"message":"m","code":"c","param":"p","type":"t"}}`, `{"object":"error","message":"m","code":400}`, `{"detail":[{"loc":["body",0,"a"],"msg":"m"}]}`,
		`{"error":"m"}`, `[{"error":{"message":"m"}}]`, `"m"`, `null`, `m`, `<title>m</title>`, `{"error":{"metadata":{"raw":"{\"message\":\"m\"}"}}}`, `{"message":"cut`, "\x00", "\xff",
		strings.Repeat(`{"error":`, 200), strings.Repeat(`{"metadata":`, 200), strings.Repeat("[", 200),
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e := ReadError(body, same)
		if !utf8.ValidString(e.Message+e.Param+e.Code) || len(e.Message) > maxMessage+len("…") || !isWord(e.Code) || e.Status < 0 || e.Status > 599 {
			t.Fatalf("%q: %+v", body, e)
		}
	})
}
