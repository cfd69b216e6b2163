package redact

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func newRand() *rand.Rand { return rand.New(rand.NewPCG(7, 11)) }

// checkRedacted checks that exactly the credential of p is replaced, in plain text and in up to three levels of JSON.
func checkRedacted(t *testing.T, p Sample) {
	t.Helper()
	clean, found := Text([]byte(p.Text()))
	if string(clean) != p.Clean() || found != 1 {
		t.Errorf("%s: text %q became %q, %d found", p.Rule, p.Text(), clean, found)
		return
	}
	doc := p.Text()
	for depth := 1; depth <= 3; depth++ {
		doc = quoted(doc)
		clean, found := JSON([]byte(doc))
		got := string(clean)
		for range depth {
			got = unquoted(got)
		}
		if got != p.Clean() || found != 1 {
			t.Errorf("%s: at depth %d, %s became %s, %d found", p.Rule, depth, doc, clean, found)
			return
		}
	}
}

func TestEveryRuleRedactsItsSamples(t *testing.T) {
	of := map[string]bool{}
	for _, p := range Samples(newRand()) {
		of[p.Rule] = true
		checkRedacted(t, p)
	}
	for _, name := range Rules() {
		if !of[name] {
			t.Errorf("%s has no sample", name)
		}
	}
}

func TestTokensAreFoundBetweenAnyDelimiters(t *testing.T) {
	for _, p := range Samples(newRand()) {
		if p.Before != "" || p.After != "" {
			continue
		}
		for _, around := range [][2]string{
			{"x ", " y"}, {"\n", "\n"}, {`"`, `"`}, {"'", "'"}, {"`", "`"}, {"(", ")"}, {"<", ">"}, {"x=", "&y=1"}, {"x:", ","}, {"[", "]"}, {"é", "é"}, {"\t", ";"}, {"%3D", "%26"},
		} {
			checkRedacted(t, Sample{p.Rule, around[0], p.Secret, around[1]})
		}
	}
}

func TestEscapedCredentialsAreFound(t *testing.T) {
	vendors := 0
	for _, p := range Samples(newRand()) {
		if p.Rule == "vendor" {
			if vendors++; vendors > 3 { // the samples of vendors differ only in the name
				continue
			}
		}
		text := p.Text()
		ways := []func(int) bool{func(int) bool { return true }, func(i int) bool { return i%2 == 0 }, func(i int) bool { return i%2 == 1 }}
		for at := range min(len(p.Secret), 80) {
			ways = append(ways, func(i int) bool { return i == len(p.Before)+at })
		}
		for i, which := range ways {
			one := escaped(text, which)
			docs := []string{one, quoted(one)}
			if i < 3 {
				docs = append(docs, escaped(one, func(i int) bool { return one[i] == '\\' }))
			}
			for depth, doc := range docs {
				clean, found := JSON([]byte(doc))
				got := unquoted(string(clean))
				if depth > 0 {
					got = unquoted(got)
				}
				if got != p.Clean() || found != 1 {
					t.Fatalf("%s: %s became %s, %d found", p.Rule, doc, clean, found)
				}
			}
		}
	}
}

func TestSlashesMayBeEscaped(t *testing.T) {
	for _, p := range Samples(newRand()) {
		doc := p.Text()
		for depth := 1; depth <= 3; depth++ {
			doc = strings.ReplaceAll(quoted(doc), "/", `\/`)
			clean, found := JSON([]byte(doc))
			got := string(clean)
			for range depth {
				got = unquoted(got)
			}
			if got != p.Clean() || found != 1 {
				t.Errorf("%s: %s became %s, %d found", p.Rule, doc, clean, found)
			}
		}
	}
}

func TestMemberNamesAreRedacted(t *testing.T) {
	p := sampleOfShape(newRand(), &rules[0], parseShape(rules[0].shapes[0]))
	doc := `{"a":[1,{"` + p.Secret + `":null}],"b":2}`
	if clean, found := JSON([]byte(doc)); string(clean) != `{"a":[1,{"`+Mark+`":null}],"b":2}` || found != 1 {
		t.Errorf("%s became %s", doc, clean)
	}
}

func TestAllCredentialsAreCounted(t *testing.T) {
	all := Samples(newRand())
	var doc []string
	for _, p := range all {
		doc = append(doc, p.Text())
	}
	text, _ := json.Marshal(doc)
	clean, found := JSON(text)
	if found != len(all) || bytes.Count(clean, []byte(Mark)) != len(all) {
		t.Errorf("%d found of %d", found, len(all))
	}
}

// TestAdjacentCredentialsAreRedacted needs several passes: a credential is delimited by another one.
func TestAdjacentCredentialsAreRedacted(t *testing.T) {
	rng := newRand()
	of := func(shape string) string { return sampleOfShape(rng, &rule{}, parseShape(shape)).Secret }
	for _, text := range []string{
		of("AKIA{k:16}") + of("github_pat_{w:36,}"), of("lsv2_pt_{x:32}_{x:10}") + of("AKIA{k:16}"),
		of("AKIA{k:16}") + of("lsv2_pt_{x:32}_{x:10}") + of("AKIA{k:16}") + of("lsv2_sk_{x:32}_{x:10}"),
	} {
		if clean, _ := Text([]byte(text)); len(bytes.ReplaceAll(clean, []byte(Mark), nil)) > 0 {
			t.Errorf("%s became %s", text, clean)
		}
	}
}

func TestTextWithoutSecretsIsReturnedUnchanged(t *testing.T) {
	for _, text := range []string{
		"", "a", "sk", "sk-", "https://", "password", "-----BEGIN", `\`, `\u`, `\u00`,
		"token: string", "password = getPassword()", "api_key: YOUR_API_KEY", "api_key = os.environ['OPENAI_API_KEY']", "secret: <your secret>",
		`password: "${DB_PASSWORD}"`, "password=$PASSWORD", "postgres://user:${PASSWORD}@host/db", "postgres://user:<password>@host", "https://example.com:8080/a@b",
		"commit 0f4ca30b1e2b7d6026624c9bdaa50ca5f7aa1b2c3", "id: 550e8400-e29b-41d4-a716-446655440000", `"key": "550e8400-e29b-41d4-a716-446655440000"`,
		"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4", "func (t *token) String() string { return t.text }",
		"the access key opens the door; the secret is to begin early", "max_tokens: 4096, top_p: 0.95", "Authorization: Bearer YOUR_API_KEY", "Bearer authentication",
		"basic understanding of tokens", "task-oriented sk-learn-like-estimators", "git push -u origin main", "docker run -u 1000:1000 x", "-----BEGIN CERTIFICATE-----\nMIIB",
		"const begin = \"-----BEGIN PRIVATE KEY-----\"", `{"password": 12345678, "token": 1.5e10, "secret": true}`, `{"password=":-1.5e+10,"x":"y"}`, "eyJhbGciOiJub25lIn0",
		"xoxb-your", "primary key: user_id", "secret: process.env.S3_SECRET_KEY", "token = config.v2.access_token", "api_key: my-service-account-2", "class=sk-estimator-doc-link-42-fitted",
		"ghp_" + strings.Repeat("x", 36), "AKIA" + strings.Repeat("X", 16), "golang.org/x/oauth2 v0.37.0 h1:JUlcxA8oAtauLfiH8FX2/FkAWHAdi0QtGCGc+hofE98=", "[redacted]", "password: [redacted]",
	} {
		for _, doc := range []string{text, quoted(text)} {
			clean, found := JSON([]byte(doc))
			if string(clean) != doc || found != 0 {
				t.Errorf("%s became %s", doc, clean)
			}
		}
	}
}

func TestCleanTextIsNotCopied(t *testing.T) {
	doc := []byte(`[{"role":"user","content":"the token \"count\" of this\nis in tokens: 12; see https://example.com/a"}]`)
	if n := testing.AllocsPerRun(100, func() {
		if clean, _ := JSON(doc); &clean[0] != &doc[0] {
			t.Fatal("is a copy")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestJSONNumbersAreNotRedacted(t *testing.T) {
	for _, doc := range []string{`{"password":1234.5678e-10}`, `{"password":-1e5,"a":"b"}`, `["password=",-1.5e+10,"!"]`, `{"secret":12345678901234567890}`} {
		if clean, found := JSON([]byte(doc)); !json.Valid(clean) || found != 0 {
			t.Errorf("%s became %s", doc, clean)
		}
	}
}

func TestEscapesAreNotSplit(t *testing.T) {
	for _, p := range Samples(newRand()) {
		for _, before := range []string{`\ufff`, `\uff`, `\ud`, `\`, `\\`, `\\\`, `\\ufff`} {
			doc := []byte(`"` + before + p.Secret + `"`)
			if clean, _ := JSON(doc); json.Valid(doc) && !json.Valid(clean) {
				t.Errorf("%s: %s became %s", p.Rule, doc, clean)
			}
		}
	}
}

func TestRuleNamesAreUnique(t *testing.T) {
	names := Rules()
	if len(names) != len(rules) || slices.Contains(names, "") {
		t.Errorf("%d names of %d rules", len(names), len(rules))
	}
}

// JSON escapes white space before a credential. The letter of that escape is not part of the credential.
func TestACredentialAfterWhiteSpaceIsFoundInJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		for _, s := range Samples(rng) {
			if clean, _ := Text([]byte(s.Text())); string(clean) != s.Clean() {
				continue // this random password reads like a word
			}
			for _, before := range []string{"", "x ", "\t", "\n", "\r\n", "x\t", "\"", "/"} {
				if clean, _ := JSON([]byte(quoted(before + s.Text()))); strings.Contains(string(clean), s.Secret) && len(s.Secret) > 8 {
					t.Fatalf("%s after %q: %s", s.Rule, before, clean)
				}
			}
		}
	}
}

// A word of forty characters at the very start of a text has nothing before it.
func TestASecretAtTheStartOfATextIsReadWithoutAPanic(t *testing.T) {
	for _, word := range []string{"secretAAAAbbbbCCCCddddEEEEffffGGGGhhhhII", "credsAb1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1WxY", "AKIAIOSFODNN7EXAMPLEabcdEFGHijklMNOPqrst"} {
		for _, text := range []string{word, word + " ", word + " and more of it after the word"} {
			Text([]byte(text))
		}
	}
}

// A line may end with a letter before the escaped line break that a credential follows.
func TestACredentialIsFoundAfterAnEscapedLineBreak(t *testing.T) {
	for _, sample := range Samples(newRand()) {
		if sample.Rule != "airtable" {
			continue
		}
		for _, before := range []string{`\n`, `x\n`, `the end\r`, `9\t`} {
			text := `"` + before + sample.Secret + `"`
			if got, _ := JSON([]byte(text)); string(got) != `"`+before+Mark+`"` {
				t.Errorf("%s became %s", text, got)
			}
		}
	}
}
