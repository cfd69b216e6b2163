package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write what is answered into the golden files")

// Golden pairs of request and answer: what stands in testdata/wire is what clients rely on. {owner}, {admin} and
// {member} stand for keys, {last crit} for the last id with that prefix that was answered; ids, times and lengths are
// reduced to their shape. A request whose name begins with poll is repeated until what it reads is done.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	eachInstance(t, func(t *testing.T, i *instance) {
		_, keys := addCallers(t, i)
		fill := strings.NewReplacer("{owner}", keys.Owner, "{admin}", keys.Admin, "{member}", keys.Member, "{revoked}", keys.Revoked, "{departed}", keys.Departed, "\n", "\r\n")
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				last := map[string]string{}
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				archive := txtar.Parse(text)
				if len(archive.Files)%2 != 0 {
					t.Fatal("a golden file is pairs of request and response")
				}
				for n := 0; n < len(archive.Files); n += 2 {
					request := strings.TrimRight(string(archive.Files[n].Data), "\n") + "\n\n"
					handler := i.routers.public
					if strings.HasPrefix(archive.Files[n].Name, "operator") {
						handler = i.routers.operators
					}
					request = lately.ReplaceAllStringFunc(request, func(name string) string { return last[name] })
					got := answerTo(t, handler, fill.Replace(request))
					for wait := time.Now(); strings.HasPrefix(archive.Files[n].Name, "request poll") && !strings.Contains(got, `"status":"DONE"`) && time.Since(wait) < 2*time.Minute; {
						time.Sleep(10 * time.Millisecond)
						got = answerTo(t, handler, fill.Replace(request))
					}
					for _, found := range named.FindAllStringSubmatch(got, -1) {
						last["{last "+found[1]+"}"] = found[0]
					}
					got = reduce(got)
					if *update {
						archive.Files[n+1].Data = []byte(got)
						continue
					}
					if diff := cmp.Diff(string(archive.Files[n+1].Data), got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", archive.Files[n].Name, diff)
					}
				}
				if *update {
					if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
}

func answerTo(t *testing.T, handler http.Handler, raw string) string {
	t.Helper()
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	body = strings.TrimSpace(body)
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Body, request.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	response := recorder.Result()
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d\n", response.StatusCode)
	if err := response.Header.WriteSubset(&out, map[string]bool{"Content-Length": true}); err != nil {
		t.Fatal(err)
	}
	out.WriteString("\n")
	if _, err := io.Copy(&out, response.Body); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(strings.ReplaceAll(out.String(), "\r\n", "\n"), "\n") + "\n" // a golden file ends with a line
}

var (
	named  = regexp.MustCompile(`\b([a-z]{2,5})_[0-9a-z]{26}\b`)
	lately = regexp.MustCompile(`\{last [a-z]+\}`)
)

var shapes = []struct {
	shape *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(`"(id|kid|key_id|from|to|x)":"[0-9A-Za-z_-]{43}"`), `"$1":"32_BYTES"`}, // before what such a text may hold by chance
	{regexp.MustCompile(`"jws":"[0-9A-Za-z_.-]+"`), `"jws":"JWS"`},
	{regexp.MustCompile(`"hash":"[0-9a-f]{64}"`), `"hash":"HASH"`},
	{regexp.MustCompile(`"seq":\d+`), `"seq":N`},
	{regexp.MustCompile(`"entries":\d+,"unsealed":\d+`), `"entries":N,"unsealed":N`},
	{regexp.MustCompile(`"created":\d{10},"owned_by":"ws_`), `"created":SECONDS,"owned_by":"ws_`},
	{named, "${1}_ID"},
	{regexp.MustCompile(`"in_report_half":(true|false)`), `"in_report_half":HALF`}, // drawn with a secret
	{regexp.MustCompile(`sk_sovereign_[0-9a-z]{47}`), "KEY"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "TIME"},
	{regexp.MustCompile(`"(created_at|completed_at)":\d{10}\b`), `"$1":SECONDS`},
	{regexp.MustCompile(`"hint":"[0-9a-z]{4}"`), `"hint":"HINT"`},
	{regexp.MustCompile(`"latency_ms":[0-9][0-9.e+-]*`), `"latency_ms":MS`},
}

func reduce(text string) string {
	for _, s := range shapes {
		text = s.shape.ReplaceAllString(text, s.as)
	}
	return text
}

// What a reviewer reads who shall not know the grade has a shape of its own in the document.
func TestTheDocumentHasTheShapeOfABlindLabel(t *testing.T) {
	s := Storage{DataDir: short(t) + "/data"}
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	i := openInstance(t, s)
	_, body, _ := strings.Cut(answerTo(t, i.routers.public, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"), "\n\n")
	var document struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct {
						Schema struct {
							OneOf []struct {
								Ref string `json:"$ref"`
							}
						}
					}
				}
			}
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	shapes := document.Paths["/v1/labels/{id}"].Get.Responses["200"].Content["application/json"].Schema.OneOf
	if len(shapes) != 2 || shapes[0].Ref != "#/components/schemas/Label" || shapes[1].Ref != "#/components/schemas/BlindLabel" {
		t.Fatalf("%+v", shapes)
	}
	got := slices.Sorted(maps.Keys(document.Components.Schemas["BlindLabel"].Properties))
	if want := []string{"criterion_id", "id", "object", "request_id", "subject", "trace_id"}; !slices.Equal(got, want) {
		t.Errorf("a blind label has %v, want %v", got, want)
	}
}
