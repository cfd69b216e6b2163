package cache

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/tenant"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func key(t testing.TB, ws tenant.ID, route, model, body string) Key {
	t.Helper()
	k, ok := KeyOf(ws, route, model, []byte(body))
	if !ok {
		t.Fatalf("%s has no key", body)
	}
	return k
}

func TestARequestHasOneKeyHoweverItIsWritten(t *testing.T) {
	for _, same := range [][]string{
		{`{"a":1,"b":[1,2]}`, "{ \"b\" : [1, 2],\n\"a\":1 }", `{"a":1.0,"b":[1,2.0]}`, `{"a":1e0,"\u0062":[10e-1,2]}`},
		{`{"m":"é"}`, `{"m":"\u00e9"}`},
		{`{"m":"😀/"}`, `{"m":"\ud83d\ude00\/"}`},
		{`{"a":1}`, `{"a":1,"stream":true}`, `{"a":1,"stream":false,"model":"x"}`, `{"models":["y"],"a":1,"stream_options":{"include_usage":true}}`, `{"a":1,"\u006dodel":"z"}`},
		{`{"o":{"x":1,"y":2}}`, `{"o":{"y":2,"x":1}}`},
		{`{"t":0.1}`, `{"t":1e-1}`, `{"t":0.10}`},
		{`{}`, `{"stream":true}`, ` { } `},
	} {
		for _, body := range same[1:] {
			if key(t, "w", "/r", "m", body) != key(t, "w", "/r", "m", same[0]) {
				t.Errorf("%s and %s have two keys", same[0], body)
			}
		}
	}
}

func TestDifferentRequestsHaveDifferentKeys(t *testing.T) {
	keys := map[Key]string{}
	for _, q := range [][4]string{
		{"w", "/r", "m", `{"a":1}`},
		{"v", "/r", "m", `{"a":1}`},
		{"w", "/s", "m", `{"a":1}`},
		{"w", "/r", "n", `{"a":1}`},
		{"w/", "r", "m", `{"a":1}`},
		{"w", "/", "rm", `{"a":1}`},
		{"w", "/rm", "", `{"a":1}`},
		{"w/rm", "", "", `{"a":1}`},
		{"w", "/r", "m", `{"a":2}`},
		{"w", "/r", "m", `{"a":"1"}`},
		{"w", "/r", "m", `{"a":[1]}`},
		{"w", "/r", "m", `{"b":1}`},
		{"w", "/r", "m", `{"a":null}`},
		{"w", "/r", "m", `{}`},
		{"w", "/r", "m", `{"a":9007199254740992}`},
		{"w", "/r", "m", `{"a":9007199254740993}`},
		{"w", "/r", "m", `{"a":[1,2]}`},
		{"w", "/r", "m", `{"a":[2,1]}`},
		{"w", "/r", "m", `{"o":{"model":"x"}}`},
		{"w", "/r", "m", `{"o":{"model":"y"}}`},
		{"w", "/r", "m", `{"o":{"stream":true}}`},
		{"w", "/r", "m", `{"a":1,"b":2}`},
		{"w", "/r", "m", `{"a":"1,\"b\":2"}`},
		{"w", "/r", "m", `{"Model":"x"}`},
	} {
		k := key(t, tenant.ID(q[0]), q[1], q[2], q[3])
		if other, taken := keys[k]; taken {
			t.Errorf("%q has the key of %s", q, other)
		}
		keys[k] = fmt.Sprintf("%q", q)
	}
}

func TestTheKeysOfTwoWorkspacesDifferInMoreThanTheName(t *testing.T) {
	if key(t, "v", "/r", "m", `{}`).hash == key(t, "w", "/r", "m", `{}`).hash {
		t.Error("the workspace is not in the sum")
	}
}

func TestWhatHasNoCanonicalFormHasNoKey(t *testing.T) {
	for _, body := range []string{``, `[]`, `"x"`, `{`, `{"a":1}{}`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`, `{"a":01}`} {
		if _, ok := KeyOf("w", "/r", "m", []byte(body)); ok {
			t.Errorf("%q has a key", body)
		}
	}
	if _, ok := KeyOf("", "/r", "m", []byte(`{}`)); ok {
		t.Error("an empty workspace has a key")
	}
	c := New(1<<20, time.Hour)
	c.Put(Key{}, Entry{}, noon)
	if _, ok := c.Get(Key{}, noon); ok {
		t.Error("something is kept under no key")
	}
}

func TestABodyIsReadAndNotChanged(t *testing.T) {
	body := []byte(`{ "b":1.0, "a":2 }`)
	before := bytes.Clone(body)
	if KeyOf("w", "/r", "m", body); !bytes.Equal(body, before) {
		t.Errorf("%s became %s", before, body)
	}
}

func TestAnAnswerExpiresAfterItsTTL(t *testing.T) {
	c := New(1<<20, time.Hour)
	k := key(t, "w", "/r", "m", `{}`)
	for after, want := range map[time.Duration]bool{0: true, time.Hour - 1: true, time.Hour: false, 2 * time.Hour: false, -time.Second: true, -2 * time.Hour: false} {
		c.Put(k, Entry{Model: "m", Body: []byte("x")}, noon)
		e, ok := c.Get(k, noon.Add(after))
		if ok != want || ok && (e.Model != "m" || string(e.Body) != "x") {
			t.Errorf("after %s: %v %v", after, e, ok)
		}
		if n, _ := c.Stats(); (n == 1) != want {
			t.Errorf("after %s: %d entries", after, n)
		}
	}
	c.Put(k, Entry{}, noon)
	c.Get(k, noon.Add(59*time.Minute))
	if _, ok := c.Get(k, noon.Add(time.Hour)); ok {
		t.Error("an answer lives longer because it is asked for")
	}
}

func TestOneAnswerCannotTakeTheWholeCache(t *testing.T) {
	c := New(10*overhead*10, time.Hour)
	k := key(t, "w", "/r", "m", `{}`)
	c.Put(k, Entry{Body: make([]byte, 9*overhead)}, noon)
	if _, ok := c.Get(k, noon); !ok {
		t.Error("a tenth is not kept")
	}
	c.Put(k, Entry{Body: make([]byte, 9*overhead+1)}, noon)
	if _, ok := c.Get(k, noon); ok {
		t.Error("more than a tenth is kept, or what it replaced")
	}
}

// A naive cache is a slice in the order of use.
type naive struct {
	most int64
	all  []naiveEntry
}

type naiveEntry struct {
	ws, name string
	entry    Entry
	put      time.Time
}

func (n *naive) remove(keep func(naiveEntry) bool) {
	var left []naiveEntry
	for _, e := range n.all {
		if keep(e) {
			left = append(left, e)
		}
	}
	n.all = left
}

func (n *naive) bytes() (sum int64) {
	for _, e := range n.all {
		sum += e.entry.size()
	}
	return sum
}

func (n *naive) fit() {
	for n.bytes() > n.most {
		n.all = n.all[1:]
	}
}

func TestTheCacheAgreesWithANaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const life = 100
		most := rapid.Int64Range(10*overhead, 60*overhead).Draw(t, "most")
		c, n, now := New(most, life), &naive{most: most}, noon
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "later")))
			ws, name := rapid.SampledFrom([]string{"v", "w"}).Draw(t, "ws"), strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "name"))
			k, _ := KeyOf(tenant.ID(ws), "/r", name, []byte(`{}`))
			others := func(e naiveEntry) bool { return e.ws != ws || e.name != name }
			switch rapid.SampledFrom(slices.Concat(slices.Repeat([]string{"get", "put"}, 9), []string{"resize", "forget"})).Draw(t, "step") {
			case "get":
				got, ok := c.Get(k, now)
				var want *naiveEntry
				for i := range n.all {
					if !others(n.all[i]) {
						e := n.all[i]
						want = &e
					}
				}
				n.remove(others)
				if want != nil && now.Sub(want.put) < life {
					n.all = append(n.all, *want)
				} else {
					want = nil
				}
				if ok != (want != nil) || ok && (got.Model != want.entry.Model || !bytes.Equal(got.Body, want.entry.Body)) {
					t.Fatalf("%s of %s: %v %v, want %v", name, ws, got, ok, want)
				}
			case "put":
				e := Entry{Model: strconv.Itoa(rapid.Int().Draw(t, "model")), Body: make([]byte, rapid.IntRange(0, 7*overhead).Draw(t, "size"))}
				c.Put(k, e, now)
				if n.remove(others); e.size() <= n.most/maxShare {
					n.all = append(n.all, naiveEntry{ws, name, e, now})
				}
				n.fit()
			case "resize":
				n.most = rapid.Int64Range(0, 100*overhead).Draw(t, "new most")
				c.Resize(n.most)
				n.fit()
			case "forget":
				c.Forget(tenant.ID(ws))
				n.remove(func(e naiveEntry) bool { return e.ws != ws })
			}
			entries, size := c.Stats()
			if entries != len(n.all) || size != n.bytes() || size > n.most {
				t.Fatalf("%d entries of %d bytes, want %d of %d, at most %d", entries, size, len(n.all), n.bytes(), n.most)
			}
		}
		c.Resize(0)
		if entries, size := c.Stats(); entries != 0 || size != 0 || len(c.byWorkspace) != 0 {
			t.Fatalf("%d entries of %d bytes and %d workspaces are left", entries, size, len(c.byWorkspace))
		}
	})
}

func TestConcurrentWorkspacesNeverGetEachOthersAnswers(t *testing.T) {
	const most = 40 * overhead
	c := New(most, time.Hour)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			ws := tenant.ID(strconv.Itoa(w % 4))
			for i := range 2000 {
				k, _ := KeyOf(ws, "/r", strconv.Itoa(i%20), []byte(`{}`))
				if e, ok := c.Get(k, noon); ok && string(e.Body) != string(ws)+strconv.Itoa(i%20) {
					t.Errorf("%s was given %s", ws, e.Body)
				}
				c.Put(k, Entry{Body: []byte(string(ws) + strconv.Itoa(i%20))}, noon)
				if i%500 == 0 {
					c.Forget(ws)
				}
				if _, size := c.Stats(); size > most {
					t.Errorf("%d bytes", size)
				}
			}
		})
	}
	all.Wait()
}

func FuzzKeyOf(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1.0}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		k, ok := KeyOf("w", "/r", "m", body)
		if again, too := KeyOf("w", "/r", "m", []byte(" "+string(body)+"\n")); k != again || ok != too {
			t.Errorf("%q", body)
		}
	})
}

func BenchmarkGet(b *testing.B) {
	c := New(1<<30, time.Hour)
	keys := make([]Key, 10_000)
	for i := range keys {
		keys[i] = key(b, tenant.ID(strconv.Itoa(i%100)), "/r", strconv.Itoa(i), `{}`)
		c.Put(keys[i], Entry{Body: []byte("x")}, noon)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			c.Get(keys[i%len(keys)], noon)
		}
	})
}

func BenchmarkKeyOf(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 800) + `"}],"temperature":0.5}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		KeyOf("w", "/r", "m", body)
	}
}
