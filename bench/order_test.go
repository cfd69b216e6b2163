package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
)

// parsed is a request as a server reads it.
func parsed(t *testing.T, text []byte) (key string, body map[string]any) {
	t.Helper()
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return request.Header.Get("Authorization"), body
}

func TestEveryKeyAndNameIsSentAndPairsStayTogether(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, paired := range []bool{false, true} {
		p := senders{paired: paired, roams: true}
		for i := range 5 {
			p.keys, p.models = append(p.keys, fmt.Sprint("sk_", i)), append(p.models, alias("chat", i))
		}
		for i := range scenarios {
			o := newOrder(scenarios[i].path, scenarios[i].body, p)
			request, seen := o.copy(), map[string]bool{}
			if len(request) > 10<<10 {
				continue // which takes long to parse, and is made like the others
			}
			for range 200 {
				used := o.address(request, random, 0)
				key, body := parsed(t, request)
				if key != "Bearer "+p.keys[used] || paired && body["model"] != p.models[used] {
					t.Fatalf("%s asks for %s, and it should be key %d", key, body["model"], used)
				}
				seen[key+fmt.Sprint(body["model"])] = true
			}
			if want := map[bool]int{true: 5, false: 25}[paired]; len(seen) != want {
				t.Errorf("%s: %d pairs of key and name, want %d", scenarios[i].name, len(seen), want)
			}
		}
	}
}

func TestAConnectionKeepsItsKey(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	p := senders{keys: []string{"sk_0", "sk_1", "sk_2"}, models: []string{alias("chat", 0), alias("chat", 1)}}
	o := newOrder(chatPath, chat(100, false), p)
	firsts := map[int]bool{}
	for range 100 {
		request := o.copy()
		first := o.address(request, random, -1)
		firsts[first] = true
		key := first
		for range 10 {
			if shown, _ := parsed(t, request); key != first || shown != "Bearer "+p.keys[first] {
				t.Fatalf("%s of key %d, and it was %d", shown, key, first)
			}
			key = o.address(request, random, key)
		}
	}
	if len(firsts) != len(p.keys) {
		t.Errorf("%d of %d keys are anybody's first", len(firsts), len(p.keys))
	}
}

func TestBodiesAreAsLongAsTheirScenarioSays(t *testing.T) {
	for name, bounds := range map[string][2]int{"chat": {500, 700}, "prompt": {200 << 10, 210 << 10}, "escaped": {190 << 10, 215 << 10}, "languages": {200 << 10, 212 << 10}, "paced": {500, 700}} {
		for i := range scenarios {
			if size := len(scenarios[i].body("chat-000000")); scenarios[i].name == name && (size < bounds[0] || size > bounds[1]) {
				t.Errorf("%s has %d bytes", name, size)
			}
		}
	}
	escapes := bytes.Count(quoted(200<<10)("m"), []byte(`\`))
	if escapes < 20_000 {
		t.Errorf("%d escapes in 200 KB", escapes)
	}
}
