package redact

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Sample is a text with one credential in it. Samples are generated at run time, so that the repository contains
// none.
type Sample struct{ Rule, Before, Secret, After string }

// Text returns the text with the credential.
func (s Sample) Text() string { return s.Before + s.Secret + s.After }

// Clean returns the text with Mark in place of the credential.
func (s Sample) Clean() string { return s.Before + Mark + s.After }

// randomString returns n characters of a class that look random: with digits and letters, and not like English.
func randomString(rng *rand.Rand, of class, n int) string {
	for {
		text := make([]byte, n)
		for i := range text {
			text[i] = classChars[of][rng.IntN(len(classChars[of]))]
		}
		if l := statsOf(text); n < 8 || of == digit || l.digits > 1 && l.letters > 1 && !l.english() &&
			is(text[0], alnum) && is(text[n-1], alnum) {
			return string(text)
		}
	}
}

// sampleOfShape returns a random text of a shape, with the lead of its rule.
func sampleOfShape(rng *rand.Rand, r *rule, s shape) Sample {
	p := Sample{Rule: r.name}
	for i, piece := range s.pieces {
		if i == s.secretFrom {
			p.Before, p.Secret = p.Secret, ""
		}
		n := piece.least
		if piece.most == unbounded {
			n += 8
		}
		p.Secret += piece.literal
		if piece.literal == "" {
			p.Secret += randomString(rng, piece.of, n)
		}
	}
	if r.lead.most > 0 {
		p.Secret = randomString(rng, r.lead.of, r.lead.least) + p.Secret
	}
	return p
}

// Samples returns credentials of every rule, each in its usual context, for tests of packages that must not let a
// credential through.
func Samples(rng *rand.Rand) []Sample {
	var all []Sample
	for i := range rules {
		r := &rules[i]
		if r.kind > random {
			all = append(all, samplesInContext(rng, r)...)
			continue
		}
		for _, text := range r.shapes {
			all = append(all, sampleOfShape(rng, r, parseShape(text)))
		}
	}
	return all
}

// samplesInContext returns the samples of a rule whose shape is not the secret itself.
func samplesInContext(rng *rand.Rand, r *rule) []Sample {
	given := randomString(rng, alnum, 24)
	var all []Sample
	add := func(before, secret, after string) { all = append(all, Sample{r.name, before, secret, after}) }
	switch r.kind {
	case password:
		add("password = \"", "hunter"+given[:1]+"!", "\" # mine")
		add("DB_PASSWORD=", given[:8], "\nNEXT=1")
		add("Server=db;Pwd=", given[:10], ";Timeout=3")
		add(`{"passwd": "`, given[:9], `", "n": 1}`)
		add(`{"name": "password", "value": "`, given[:9], `"}`)
		add(`<add key="password" value="`, given[:9], `"/>`)
		add("my password is ", given[:12], ", thanks")
		add("machine example.com login me password ", given[:8], "\nmachine example.org")
		add("machine example.com\n\tlogin me\n\tpassword ", given[:8], "\n")
	case secret:
		add("api_key: ", given, "\n")
		add(`{"client_secret":"`, given, `"}`)
		add("x-api-key: ", given, "\r\n")
		add("aws_secret_access_key = ", randomString(rng, b64Sample, 40), "\n")
		add("config['api-key'] = '", given, "'")
		add("https://api.example.com/v1?token=", given, "&page=2")
		add("my token is ", given, ". Help")
		add("the token for the build is ", given, ". Help")
		add("secret: ", randomString(rng, hexLow, 8)+"-"+randomString(rng, hexLow, 4)+"-4"+
			randomString(rng, hexLow, 3)+"-a"+randomString(rng, hexLow, 3)+"-"+randomString(rng, hexLow, 12), "\n")
	case key:
		add(`"signing_key": "`, given, `",`)
		add("Authorization: Token ", given, "\n")
		add("accessKey := `", given, "`")
	case vendor:
		for _, who := range vendors {
			add(strings.TrimPrefix(who, "~")+"_x = \"", given, `"`)
		}
	case scheme:
		add("curl -H 'Authorization: Bearer ", given, "' x")
		add("send Bearer ", given, " with it")
		add(`"Basic `, base64.StdEncoding.EncodeToString([]byte("aladdin:open sesame")), `"`)
	case userinfo:
		add("postgres://app:", given[:9], "@db.example.com:5432/app?x=1")
		add("redis://:", "p@ss"+given[:4], "@cache")
		add("https://", given, "@example.com/x.git")
		add("amqp://", randomString(rng, alnum, 12)+":"+given[12:], "@mq/")
	case account:
		add("curl -u ", "me:"+given[:8], " https://example.com")
		add("curl --user '", "me:"+given[:8], "' https://example.com")
		add("curl -u ", given+":", " https://example.com")
	case privateKey:
		all = append(all, samplePEM(rng, r.name)...)
	case encoded:
		key := sampleOfShape(rng, &rule{}, parseShape("sk-ant-{t:20,}")).Secret
		add("it is ", base64.StdEncoding.EncodeToString([]byte(key)), " in base64")
		add(
			"apiVersion: v1\ndata:\n  config: ", base64.StdEncoding.EncodeToString([]byte("user: me\nkey: "+key+"\n")),
			"\nkind: Secret",
		)
		add("url-safe: ", base64.RawURLEncoding.EncodeToString([]byte("the key? it's "+key)), "")
	case awsSecret:
		add("my AWS secret access key is ", randomString(rng, b64Sample, 40), ". Thanks")
		add("AWS credentials: there is ", randomString(rng, b64Sample, 40), " and go")
		add("the secret: (", randomString(rng, b64Sample, 40), ")")
	case jwt:
		add("jwt ", sampleJWT(rng), " end")
		add("Cookie: session=", strings.Join(strings.Split(sampleJWT(rng), ".")[:2], "."), "; x=1")
	default:
		panic(fmt.Sprintf("%s has no samples", r.name))
	}
	return all
}

const b64Sample = alnum // without + and /, so that no sample ends in punctuation

func sampleJWT(rng *rand.Rand) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]string{"alg": "HS256", "typ": "JWT"}) + "." +
		part(map[string]string{"sub": randomString(rng, alnum, 12)}) + "." + randomString(rng, name, 43)
}

// samplePEM returns private keys: complete, truncated, and on one line.
func samplePEM(rng *rand.Rand, rule string) []Sample {
	body := make([]byte, 300)
	for i := range body {
		body[i] = byte(rng.Uint32())
	}
	var all []Sample
	for _, kind := range []string{"RSA ", "EC ", "", "OPENSSH ", "ENCRYPTED "} {
		whole := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind + "PRIVATE KEY", Bytes: body})))
		lines := strings.Split(whole, "\n")
		all = append(
			all,
			Sample{rule, "key:\n", whole, "\nand so on"},
			Sample{rule, "key: ", strings.ReplaceAll(whole, "\n", " "), ", and so on"},
			Sample{rule, "key: ", strings.Join(lines[:len(lines)-1], "\n"), ""},
			Sample{rule, "key: ", strings.Join(lines[:4], "\n"), "\n(the rest is cut off)"},
		)
	}
	return all
}
