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

// A place is a file of this module and what it does there.
type place struct{ file, what string }

// dialers are the files and folders that reach the network by themselves, each with where they dial. No customer has a
// say in any.
var dialers = map[string]string{
	"internal/net/netguard/netguard.go":    "the guard",
	"internal/wire/upstream/standard.go":   "the providers' base URLs, which are the operator's",
	"internal/net/http1/http1.go":          "the origin that it is made for: the providers' base URLs",
	"internal/net/http1/link.go":           "the same",
	"internal/app/adminclient.go":          "the server's own Unix socket",
	"internal/app/listen.go":               "the service manager's socket",
	"internal/app/operations.go":           "the operator's collector of traces",
	"internal/store/db/db.go":              "the operator's database",
	"internal/store/db/writer.go":          "a file of the operator's",
	"internal/store/db/errors.go":          "nothing: it reads the database's errors",
	"internal/store/db/dbtest":             "the tests' own database",
	"internal/store/api/apitest/matrix.go": "the tests' own server",
	"bench":                                "the benchmark's own servers",
	"e2e/provider":                         "nothing: it answers by the rules of the vendors' own types",
	"e2e/sdk/golang":                       "the tests' own server",
}

// readers are the files that take the text of a customer's URL, each with what becomes of it.
var readers = map[string]string{
	"internal/domain/providerkey/providerkey.go": "it is kept, and listed",
	"internal/domain/providerkey/publish.go":     "it is put in force",
	"internal/plane/gateway/plan/plan.go":        "it goes with the request",
	"internal/wire/upstream/standard.go":         "it is dialled, by the guard's transport",
	"internal/wire/upstream/lean.go":             "it is handed to the standard way",
}

// held are the fields that hold the text of a customer's URL on its way from where it is kept to where it is dialled.
var held = [][3]string{
	{"sovereign/internal/live", "OwnKey", "BaseURL"},
	{"sovereign/internal/wire/upstream", "Credentials", "BaseURL"},
}

// harmlessModules are the other modules that know package net and do not dial by it.
var harmlessModules = map[string]string{
	"github.com/danielgtaylor/huma/v2":    "serves",
	"github.com/go-jose/go-jose/v4":       "reads certificates",
	"github.com/prometheus/client_golang": "serves",
	"go.opentelemetry.io/otel":            "reads headers",
}

// dialling are the names of the standard library by which the network is reached.
var dialling = map[string][]string{
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

// planted is a package that does everything that is forbidden. It is laid over the module, so that the search shows that
// it finds.
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
	_ = (&upstream.Own{BaseURL: "https://example.com"}).BaseURL
	return u.String(), string(t), fmt.Sprintf("%s/v1", u), u.String
}
`

// crimes are what planted does, each as often as it does so.
var crimes = map[string]int{
	"net/http.Client": 2, "net/http.Transport": 1, "net/http.Get": 1, "net/http.DefaultClient": 1, "net.Dialer": 1, "net.DialTimeout": 1,
	"crypto/tls.Dial": 1, "net/http/httputil.ReverseProxy": 1, "github.com/jackc/pgx/v5": 1,
	"URL by String": 3, "URL by MarshalText": 1, "URL as any": 3, "URL in Own.BaseURL": 2,
}

const plantedFile = "internal/net/netguard/planted/planted.go"

func TestNobodyElseDials(t *testing.T) {
	m := load(t)
	found := map[place]int{}
	for _, p := range m.own {
		for _, ignored := range p.IgnoredGoFiles {
			if strings.HasSuffix(ignored, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, ignored), nil, parser.ImportsOnly)
			if err != nil || len(file.Imports) > 0 {
				t.Errorf("%s/%s is not of this build, was not looked at, and imports something: %v", p.Dir, ignored, err)
			}
		}
		m.search(p, found)
	}
	caught, used := map[string]int{}, map[string]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(found), func(a, b place) int { return strings.Compare(a.file+a.what, b.file+b.what) }) {
		allowed, advice := dialers, "reaches the network by %s: use a Guard, or say in dialers why no customer has a say in where"
		if strings.HasPrefix(at.what, "URL ") {
			allowed, advice = readers, "reads a customer's %s: hand it to a Guard, and say so in readers"
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
	if !maps.Equal(caught, crimes) {
		t.Errorf("of what was planted\n%v\nwas found\n%v", crimes, caught)
	}
	for _, table := range []map[string]string{dialers, readers} {
		for row, why := range table {
			if !used[row+why] {
				t.Errorf("%s needs no reason: there is nothing for %q", row, why)
			}
		}
	}
}

// search counts what the files of a package do.
func (m *module) search(p *source, found map[place]int) {
	in := func(n ast.Node, what string) {
		file, _ := filepath.Rel(m.root, m.files.Position(n.Pos()).Filename)
		found[place{filepath.ToSlash(file), what}]++
	}
	for name, object := range p.info.Uses {
		if what, ok := reaches(object); ok {
			in(name, what)
		}
		if what, ok := m.held[object]; ok {
			in(name, what)
		}
	}
	for _, file := range p.syntax {
		for _, spec := range file.Imports {
			if imported := strings.Trim(spec.Path.Value, `"`); m.dialsItself(imported) {
				in(spec, imported)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				for i := range call.Args {
					if asAny(p.info, call, i) {
						in(call.Args[i], "URL as any")
					}
				}
			}
			return true
		})
	}
}

// reaches names what an object of the standard library, or of a URL's, is used for here.
func reaches(object types.Object) (string, bool) {
	if object.Pkg() == nil {
		return "", false
	}
	if method, ok := object.(*types.Func); ok && method.Signature().Recv() != nil {
		return "URL by " + object.Name(), isURL(method.Signature().Recv().Type()) && (object.Name() == "String" || object.Name() == "MarshalText")
	}
	of := object.Pkg()
	return of.Path() + "." + object.Name(), object.Parent() == of.Scope() && slices.Contains(dialling[of.Path()], object.Name())
}

// dialsItself reports whether a package of another module knows package net, so that it may dial.
func (m *module) dialsItself(imported string) bool {
	p := m.all[imported]
	return p != nil && p.Module != nil && !p.Module.Main && harmlessModules[p.Module.Path] == "" && slices.Contains(p.Deps, "net")
}

// asAny reports whether an argument is a URL that its function takes as an interface, or in a way that is left unknown,
// and so may read by its text.
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
