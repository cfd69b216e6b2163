package netguard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A use is something that a file of this module does: it dials, or it reads the text of a customer's URL.
type use struct{ file, what string }

// dialers are the files and folders that dial without a Guard, each with what they dial. No customer chooses any of it.
var dialers = map[string]string{
	"internal/net/netguard/netguard.go":    "the guard",
	"internal/wire/upstream/nethttp.go":    "the base URLs of providers, which are the operator's, and of engines, which the server runs",
	"internal/net/http1/http1.go":          "the origin that it is made for: the base URLs of providers and engines",
	"internal/net/http1/clientconn.go":     "the same",
	"internal/app/adminclient.go":          "the server's own Unix socket",
	"internal/app/gateclient.go":           "the server that the user of sovereign gate names",
	"internal/dash/signin/oidc.go":         "the operator's identity provider",
	"internal/app/listen.go":               "the service manager's socket",
	"internal/app/operations.go":           "the operator's collector of traces",
	"internal/domain/billing/checkout.go":  "the operator's payment provider",
	"internal/domain/notify/mail.go":       "the operator's mail server",
	"internal/domain/pool/adapters.go":     "the operator's engines",
	"internal/domain/serving/process":      "the engines on this machine",
	"internal/net/kubeapi/cluster.go":      "the operator's Kubernetes cluster",
	"internal/store/artifact/s3.go":        "the operator's store of files",
	"internal/store/artifact/s3put.go":     "the operator's store of files",
	"internal/store/artifact/artifacttest": "the tests' own server",
	"internal/store/db/db.go":              "the operator's database",
	"internal/store/db/postgres.go":        "the operator's database",
	"internal/store/db/listen.go":          "the operator's database",
	"internal/store/db/writer.go":          "a file of the operator's",
	"internal/store/db/errors.go":          "nothing: it reads the database's errors",
	"internal/net/netguard/netguardtest":   "the tests' own DNS server",
	"internal/store/db/dbtest":             "the tests' own database",
	"internal/store/api/apitest/matrix.go": "the tests' own server",
	"bench":                                "the benchmark's own servers",
	"e2e/provider":                         "nothing: it answers by the rules of the vendors' own types",
	"e2e/sdk/golang":                       "the tests' own server",
	"e2e/stripe":                           "the tests' own server, which it sends events to",
}

// readers are the files that read the text of a customer's URL, each with what they do with it.
var readers = map[string]string{
	"internal/domain/providerkey/providerkey.go": "it is kept, and listed",
	"internal/domain/providerkey/publish.go":     "it is put in force",
	"internal/domain/evalendpoint/endpoint.go":   "it is kept, and listed",
	"internal/domain/evalendpoint/store.go":      "it is kept, and parsed again before it is dialled",
	"internal/domain/evalendpoint/client.go":     "it is dialled, by the guard's transport",
	"internal/domain/envtool/tool.go":            "it is kept, and listed; calls dial it by the guard's transport",
	"internal/domain/notify/channel.go":          "it is kept, and listed",
	"internal/domain/notify/webhook.go":          "it is dialled, by the guard's transport",
	"internal/plane/gateway/plan/plan.go":        "it goes with the request",
	"internal/wire/upstream/nethttp.go":          "it is dialled, by the guard's transport",
	"internal/wire/upstream/http1.go":            "it is handed to the standard way",
}

// urlFields are the fields that hold the text of a customer's URL between storage and dialling.
var urlFields = [][3]string{
	{"sovereign/internal/live", "OwnKey", "BaseURL"},
	{"sovereign/internal/wire/upstream", "Credentials", "BaseURL"},
	{"sovereign/internal/domain/evalendpoint", "EvalEndpoint", "BaseURL"},
}

// harmlessModules are the modules that depend on package net and do not dial, each with what they do.
var harmlessModules = map[string]string{
	"github.com/danielgtaylor/huma/v2":    "serves",
	"github.com/go-jose/go-jose/v4":       "reads certificates",
	"github.com/prometheus/client_golang": "serves",
	"go.opentelemetry.io/otel":            "reads headers",
}

// dialFuncs are the identifiers of the standard library that dial.
var dialFuncs = map[string][]string{
	"net":               {"Dial", "DialIP", "DialTCP", "DialTimeout", "DialUDP", "DialUnix", "Dialer"},
	"crypto/tls":        {"Client", "Dial", "DialWithDialer", "Dialer"},
	"net/http":          {"Client", "DefaultClient", "DefaultTransport", "Get", "Head", "NewFileTransport", "Post", "PostForm", "Transport"},
	"net/http/httputil": {"NewClientConn", "NewProxyClientConn", "NewSingleHostReverseProxy", "ReverseProxy"},
	"net/rpc":           {"Dial", "DialHTTP", "DialHTTPPath", "NewClient"},
	"net/rpc/jsonrpc":   {"Dial", "NewClient"},
	"net/smtp":          {"Dial", "NewClient", "SendMail"},
	"log/syslog":        {"Dial", "New", "NewLogger"},
	"syscall":           {"Connect", "Sendto"},
}

// planted is a package that does everything that is forbidden. An overlay adds it to the module, so that the test shows
// that the search finds it.
const planted = `package planted

import (
	"context"
	"crypto/tls"
	"net"
	web "net/http"
	. "net/http/httputil"

	"github.com/jackc/pgx/v5"

	"sovereign/internal/net/netguard"
	"sovereign/internal/wire/upstream"
)

var (
	c1 = web.Client{}
	c2 = new(web.Client)
	c3 web.Transport
	c4 = web.Get
	c5 = web.DefaultClient.Do
	c6 = struct{ net.Dialer }{}
	c7 = net.DialTimeout
	c8 = tls.Dial
	c9 = ReverseProxy{}
)

type base struct{ netguard.URL }

func texts(u netguard.URL, b *base, g *netguard.Guard) (string, string, string, func() string) {
	_, _ = web.NewRequestWithContext(context.Background(), "GET", b.String(), nil)
	t, _ := u.MarshalText()
	_, _, _, _ = g.Client(), append([]netguard.URL{}, u), netguard.URL(u), any(u)
	_ = pgx.Identifier{}.Sanitize(u)
	_ = (&upstream.Credentials{BaseURL: "https://example.com"}).BaseURL
	return u.String(), string(t), fmt.Sprintf("%s/v1", u), u.String
}
`

// plantedUses are the uses in planted, with their counts.
var plantedUses = map[string]int{
	"net/http.Client": 2, "net/http.Transport": 1, "net/http.Get": 1, "net/http.DefaultClient": 1, "net.Dialer": 1, "net.DialTimeout": 1,
	"crypto/tls.Dial": 1, "net/http/httputil.ReverseProxy": 1, "github.com/jackc/pgx/v5": 1,
	"URL by String": 3, "URL by MarshalText": 1, "URL as any": 3, "URL in Credentials.BaseURL": 2,
}

const plantedFile = "internal/net/netguard/planted/planted.go"

func TestOnlyListedFilesDial(t *testing.T) {
	m := load(t)
	found := map[use]int{}
	for _, p := range m.own {
		for _, ignored := range p.IgnoredGoFiles {
			if strings.HasSuffix(ignored, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, ignored), nil, parser.ImportsOnly)
			if err != nil || len(file.Imports) > 0 {
				t.Errorf("%s/%s is excluded from this build, was not searched, and imports something: %v", p.Dir, ignored, err)
			}
		}
		m.search(p, found)
	}
	caught, used := map[string]int{}, map[string]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(found), func(a, b use) int { return strings.Compare(a.file+a.what, b.file+b.what) }) {
		allowed, advice := dialers, "dials by %s: use a Guard, or say in dialers why no customer chooses the address"
		if strings.HasPrefix(at.what, "URL ") {
			allowed, advice = readers, "reads a customer's %s: pass it to a Guard, and say so in readers"
		}
		row := at.file
		if _, ok := allowed[row]; !ok {
			row = path.Dir(row)
		}
		if _, ok := allowed[row]; at.file == plantedFile {
			caught[at.what] = found[at]
		} else if used[row+allowed[row]] = true; !ok {
			t.Errorf("%s "+advice, at.file, at.what)
		}
	}
	if !maps.Equal(caught, plantedUses) {
		t.Errorf("planted\n%v\nfound\n%v", plantedUses, caught)
	}
	for _, table := range []map[string]string{dialers, readers} {
		for row, why := range table {
			if !used[row+why] {
				t.Errorf("%s is listed for %q, and does not need to be", row, why)
			}
		}
	}
}

// search counts the uses in the files of a package.
func (m *module) search(p *source, found map[use]int) {
	count := func(n ast.Node, what string) {
		file, _ := filepath.Rel(m.root, m.files.Position(n.Pos()).Filename)
		found[use{filepath.ToSlash(file), what}]++
	}
	for name, object := range p.info.Uses {
		if what, ok := useOf(object); ok {
			count(name, what)
		}
		if what, ok := m.urlFields[object]; ok {
			count(name, what)
		}
	}
	for _, file := range p.syntax {
		for _, spec := range file.Imports {
			if imported := strings.Trim(spec.Path.Value, `"`); m.mayDial(imported) {
				count(spec, imported)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				for i := range call.Args {
					if asAny(p.info, call, i) {
						count(call.Args[i], "URL as any")
					}
				}
			}
			return true
		})
	}
}

// useOf names the use that a reference to an object is: a function that dials, or a method that reads a URL.
func useOf(object types.Object) (string, bool) {
	if object.Pkg() == nil {
		return "", false
	}
	if method, ok := object.(*types.Func); ok && method.Signature().Recv() != nil {
		return "URL by " + object.Name(), isURL(method.Signature().Recv().Type()) && (object.Name() == "String" || object.Name() == "MarshalText")
	}
	of := object.Pkg()
	return of.Path() + "." + object.Name(), object.Parent() == of.Scope() && slices.Contains(dialFuncs[of.Path()], object.Name())
}

// mayDial reports whether a package of another module depends on package net.
func (m *module) mayDial(imported string) bool {
	p := m.all[imported]
	return p != nil && p.Module != nil && !p.Module.Main && harmlessModules[p.Module.Path] == "" && slices.Contains(p.Deps, "net")
}

// asAny reports whether an argument is a URL and its parameter an interface, or of an unknown type: then the function
// may read the URL's text.
func asAny(info *types.Info, call *ast.CallExpr, i int) bool {
	if !isURL(info.TypeOf(call.Args[i])) {
		return false
	}
	if kind := info.Types[call.Fun]; kind.IsType() {
		return types.IsInterface(kind.Type)
	}
	signature, ok := info.TypeOf(call.Fun).(*types.Signature)
	if !ok {
		return true
	}
	parameters := signature.Params()
	last := parameters.Len() - 1
	parameter := parameters.At(min(i, last)).Type()
	if slice, ok := parameter.(*types.Slice); ok && signature.Variadic() && i >= last {
		parameter = slice.Elem()
	}
	return types.IsInterface(parameter)
}

func isURL(t types.Type) bool {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Name() == "URL" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "sovereign/internal/net/netguard"
}
