package protocol_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/live"
	"sovereign/internal/wire/protocol"
	"sovereign/internal/wire/upstream"
)

// constants are the values of the constants of a type in package live.
func constants(t *testing.T, typeName string) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../live/catalog.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); !ok || name.Name != typeName {
			return true
		}
		for _, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, text)
		}
		return true
	})
	if len(values) == 0 {
		t.Fatalf("live has no constants of type %s", typeName)
	}
	return values
}

// The protocol of the server's own engines is no provider's.
func TestEveryProtocolOfProvidersHasOneRow(t *testing.T) {
	names := protocol.Names()
	all := slices.DeleteFunc(constants(t, "Protocol"), func(name string) bool { return name == string(live.Engine) })
	for _, name := range all {
		if n := len(slices.DeleteFunc(slices.Clone(names), func(p live.Protocol) bool { return string(p) != name })); n != 1 {
			t.Errorf("the protocol %s has %d rows", name, n)
		}
	}
	if len(names) != len(all) {
		t.Errorf("rows without a constant: %v", names)
	}
	for _, name := range names {
		row, ok := protocol.Of(name)
		if !ok || len(row.Kinds) == 0 || (row.Local && row.BaseURL != "") {
			t.Errorf("the row of %s: %+v", name, row)
		}
	}
	if _, ok := protocol.Of("smoke signals"); ok {
		t.Error("an unknown protocol has a row")
	}
}

func TestEveryKindOfModelIsKnownAndCanBeHad(t *testing.T) {
	kinds := constants(t, "Kind")
	for _, kind := range kinds {
		if !slices.Contains(protocol.Kinds(), live.Kind(kind)) {
			t.Errorf("the kind %s is not in the list", kind)
		}
		if !slices.ContainsFunc(protocol.Names(), func(p live.Protocol) bool {
			row, _ := protocol.Of(p)
			return slices.Contains(row.Kinds, live.Kind(kind))
		}) {
			t.Errorf("no protocol has models of kind %s", kind)
		}
	}
	if len(kinds) != len(protocol.Kinds()) {
		t.Errorf("%v and %v", kinds, protocol.Kinds())
	}
}

// A protocol without a header for its key would send requests that no provider accepts.
func TestEveryProtocolIsReachedWithItsKey(t *testing.T) {
	for _, name := range protocol.Names() {
		t.Run(string(name), func(t *testing.T) {
			var headers http.Header
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				headers = r.Header.Clone()
				w.WriteHeader(http.StatusTeapot)
			}))
			defer server.Close()
			row, _ := protocol.Of(name)
			p := &live.Provider{Name: "test", Protocol: name, BaseURL: server.URL, APIKey: secret.New("sk-test"), Configured: true}
			m := &live.Model{ID: "test/model", Provider: p, Upstream: "model", Kind: row.Kinds[0], MaxOutput: 100}
			fleet, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{p}, []*live.Model{m}), protocol.Upstream(http.DefaultTransport), nil)
			if err != nil {
				t.Fatal(err)
			}
			if row.Local {
				return
			}
			path := map[live.Kind]string{live.Chat: upstream.ChatPath, live.Embedding: upstream.EmbeddingsPath, live.Rerank: upstream.RerankPath}[m.Kind]
			body := map[live.Kind]string{
				live.Chat: `{"model":"model","messages":[{"role":"user","content":"Hello"}],"max_tokens":10}`, live.Embedding: `{"model":"model","input":"Hello"}`,
				live.Rerank: `{"model":"model","query":"Hello","documents":["a"]}`,
			}[m.Kind]
			answer, err := fleet.Sender(m).Send(context.Background(), &upstream.Request{Model: m, Path: path, Body: [][]byte{[]byte(body)}, ID: "req_1"})
			if err == nil {
				_ = answer.Body.Close()
			}
			for _, values := range headers {
				if strings.Contains(strings.Join(values, " "), "sk-test") {
					return
				}
			}
			t.Errorf("the key is in no header: %v %v", headers, err)
		})
	}
}
