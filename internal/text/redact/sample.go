package redact

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Sample is a text with one credential in it, made at run time: the repository holds none.
type Sample struct{ Rule, Before, Secret, After string }

// Text is the text with the credential.
func (s Sample) Text() string { return s.Before + s.Secret + s.After }

// Clean is the text without it.
func (s Sample) Clean() string { return s.Before + Mark + s.After }

// drawn is so many characters of a class, with digits and letters of both cases among them where it has any.
func drawn(rng *rand.Rand, of class, n int) string {
	for {
		text := make([]byte, n)
		for i := range text {
			text[i] = members[of][rng.IntN(len(members[of]))]
		}
		if l := looks(text); n < 8 || of == digit || l.digits > 1 && l.letters > 1 && !l.english() && is(text[0], alnum) && is(text[n-1], alnum) {
			return string(text)
		}
	}
}

// ofShape is a text of a shape, with the lead that its rule wants.
func ofShape(rng *rand.Rand, r *rule, s shape) Sample {
	p := Sample{Rule: r.name}
	for i, piece := range s.pieces {
		if i == s.secret {
			p.Before, p.Secret = p.Secret, ""
		}
		n := piece.least
		if piece.most == unbounded {
			n += 8
		}
		p.Secret += piece.literal
		if piece.literal == "" {
			p.Secret += drawn(rng, piece.of, n)
		}
	}
	if r.lead.most > 0 {
		p.Secret = drawn(rng, r.lead.of, r.lead.least) + p.Secret
	}
	return p
}

// Samples are credentials of every rule, in the shapes and in the company that they come in: for the tests of whoever must let none by.
func Samples(rng *rand.Rand) []Sample {
	var all []Sample
	for i := range rules {
		r := &rules[i]
		if r.how > random {
			all = append(all, inCompany(rng, r)...)
			continue
		}
		for _, text := range r.shapes {
			all = append(all, ofShape(rng, r, shaped(text)))
		}
	}
	return all
}

func inCompany(rng *rand.Rand, r *rule) []Sample {
	given := drawn(rng, alnum, 24)
	var all []Sample
	add := func(before, secret, after string) { all = append(all, Sample{r.name, before, secret, after}) }
	switch r.how {
	case password:
		add("password = \"", "hunter"+given[:1]+"!", "\" # mine")
		add("DB_PASSWORD=", given[:8], "\nNEXT=1")
		add("Server=db;Pwd=", given[:10], ";Timeout=3")
		add(`{"passwd": "`, given[:9], `", "n": 1}`)
		add(`{"name": "password", "value": "`, given[:9], `"}`)
		add(`<add key="password" value="`, given[:9], `"/>`)
		add("my password is ", given[:12], ", thanks")
	case secret:
		add("api_key: ", given, "\n")
		add(`{"client_secret":"`, given, `"}`)
		add("x-api-key: ", given, "\r\n")
		add("aws_secret_access_key = ", drawn(rng, standard, 40), "\n")
		add("config['api-key'] = '", given, "'")
		add("https://api.example.com/v1?token=", given, "&page=2")
		add("my token is ", given, ". Help")
		add("secret: ", drawn(rng, hexLow, 8)+"-"+drawn(rng, hexLow, 4)+"-4"+drawn(rng, hexLow, 3)+"-a"+drawn(rng, hexLow, 3)+"-"+drawn(rng, hexLow, 12), "\n")
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
		add("amqp://", drawn(rng, alnum, 12)+":"+given[12:], "@mq/")
	case account:
		add("curl -u ", "me:"+given[:8], " https://example.com")
		add("curl --user '", "me:"+given[:8], "' https://example.com")
		add("curl -u ", given+":", " https://example.com")
	case privateKey:
		all = append(all, blocks(rng, r.name)...)
	case jwt:
		add("jwt ", token3(rng), " end")
		add("Cookie: session=", strings.Join(strings.Split(token3(rng), ".")[:2], "."), "; x=1")
	default:
		panic(fmt.Sprintf("%s has no samples", r.name))
	}
	return all
}

const standard = alnum // so that no sample ends in a sign

func token3(rng *rand.Rand) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]string{"alg": "HS256", "typ": "JWT"}) + "." + part(map[string]string{"sub": drawn(rng, alnum, 12)}) + "." + drawn(rng, name, 43)
}

// blocks are private keys whole, cut off, and on one line.
func blocks(rng *rand.Rand, rule string) []Sample {
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
