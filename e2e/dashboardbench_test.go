package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/domain/logbook/logbooktest"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
)

// The marks of the Logs page, in milliseconds.
const (
	paintMost  = 300 // from the navigation to the first paint, with a browser that has the page's files
	answerMost = 150 // an answer to a filter
	frameMost  = 17  // a frame while the list scrolls: 60 a second
)

// The Logs page is fast with as many rows as SOVEREIGN_DASHBOARD_ROWS says: what its calls take, when a real browser
// shows the first rows, and how evenly it scrolls. `make dashboard-bench` runs it. SOVEREIGN_DASHBOARD_DATA names a
// folder in which the rows in SQLite are kept for the next run.
func TestBenchDashboard(t *testing.T) {
	rows, err := strconv.Atoi(os.Getenv("SOVEREIGN_DASHBOARD_ROWS"))
	if err != nil || rows < 1 {
		t.Skip("make dashboard-bench runs it")
	}
	chromium, packages := findChromium(t), browserPackages(t)
	eachEngine(t, func(t *testing.T, p instance) {
		if kept := os.Getenv("SOVEREIGN_DASHBOARD_DATA"); kept != "" && p.url.Empty() {
			p.data, p.root = kept+"/data", kept+"/root.key"
		}
		ws := p.fillLogs(t, rows)
		s := p.serve(t)
		b := &dashboardBench{process: s, ws: ws, cookie: s.signIn(t), table: newMarks()}
		b.calls(t)
		b.browser(t, chromium, packages)
		b.table.print(t, fmt.Sprintf("%d rows", rows))
	})
}

// fillLogs makes an instance whose only workspace has so many logged rows, and returns the workspace.
func (p instance) fillLogs(t *testing.T, rows int) tenant.ID {
	t.Helper()
	s := p.serve(t)
	s.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "90", "--json")
	var all struct{ Workspaces []struct{ ID tenant.ID } }
	_, text, _ := s.dashboard(t, s.signIn(t), "GET", "/session", "")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Workspaces) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	if code := s.stop(t); code != 0 {
		t.Fatalf("the server stops with %d", code)
	}
	d, err := db.OpenLogs(t.Context(), p.data, p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	in := d.In(all.Workspaces[0].ID)
	if n, err := db.One[int](t.Context(), in, `SELECT COUNT(*) FROM log_rows WHERE workspace_id = $1`); err != nil || n >= rows {
		t.Logf("%d rows were there already, %v", n, err)
		return all.Workspaces[0].ID
	}
	began := time.Now()
	source := logbooktest.New(all.Workspaces[0].ID, rows, clock.Now()-clock.Time(time.Minute/time.Microsecond))
	for source.Made < rows {
		ingest(t, d, source, min(20_000, rows-source.Made))
	}
	if d.Engine == db.Postgres { // as autovacuum does within a minute
		if _, err := db.Exec(t.Context(), d.Across("a benchmark"), `VACUUM ANALYZE`); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rows written in %v", rows, time.Since(began).Round(time.Second))
	return all.Workspaces[0].ID
}

// ingest writes so many rows as the server does, from a spool in memory.
func ingest(t *testing.T, d *db.DB, source *logbooktest.Source, n int) {
	t.Helper()
	s, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		s.Append(source.Next(90 * 24 * time.Hour).Append(nil))
	}
	into := logbook.NewIngester(d, s, fmt.Sprint("jrn_bench_", source.Made), slog.New(slog.DiscardHandler))
	if err := into.Ingest(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// signIn returns the cookie of a session of the first owner.
func (s *process) signIn(t *testing.T) string {
	t.Helper()
	status, text, cookie := s.dashboard(t, "", "POST", "/session/link", `{"token":"`+linkText.FindStringSubmatch(s.link(t))[2]+`"}`)
	if status != http.StatusOK {
		t.Fatalf("sign in: %d %s", status, text)
	}
	return cookie
}

// link returns a one-time link of the first owner.
func (s *process) link(t *testing.T) string {
	t.Helper()
	var made struct{ URL string }
	s.mustAdmin(t, &made, "dashboard", "link", "--email", "owner@localhost", "--json")
	if !linkText.MatchString(made.URL) {
		t.Fatalf("no link in %+v", made)
	}
	return made.URL
}

// A dashboardBench measures one server.
type dashboardBench struct {
	*process
	ws     tenant.ID
	cookie string
	table  *markTable
}

// calls measures what the page asks for at its first view and for each filter: the list and the histogram at once.
func (b *dashboardBench) calls(t *testing.T) {
	t.Helper()
	facets := b.answer(t, b.api("/logs/facets", nil))
	var common struct{ Segments []struct{ Value string } }
	if err := json.Unmarshal(facets, &common); err != nil || len(common.Segments) == 0 {
		t.Fatalf("%s: %v", facets, err)
	}
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339Nano) }
	model, segment := "provider/model-3", common.Segments[len(common.Segments)/2].Value
	for _, view := range []struct {
		name    string
		filters []string
	}{
		{"no filter", nil},
		{"model", []string{"model", model}},
		{"tag, common", []string{"tag", "task-0"}},
		{"tag, rare", []string{"tag", "task-190"}},
		{"segment", []string{"segment", segment}},
		{"finish reason", []string{"finish_reason", "length"}},
		{"cached", []string{"cache_hit", "true"}},
		{"not cached", []string{"cache_hit", "false"}},
		{"last hour", []string{"start", ago(time.Hour)}},
		{"last 24 hours", []string{"start", ago(24 * time.Hour)}},
		{"last 7 days", []string{"start", ago(7 * 24 * time.Hour)}},
		{"last 7 days of a model", []string{"start", ago(7 * 24 * time.Hour), "model", model}},
		{"model and tag", []string{"model", model, "tag", "task-0"}},
		{"finish reason and not cached", []string{"finish_reason", "stop", "cache_hit", "false"}},
		{"segment and finish reason", []string{"segment", segment, "finish_reason", "tool_calls"}},
		{"model, tag, finish, cached", []string{"model", model, "tag", "task-1", "finish_reason", "stop", "cache_hit", "false"}},
	} {
		b.view(t, view.name, view.filters)
	}
	deep := 0
	b.repeat(t, "scrolled anywhere: rows", func() []string {
		deep = (deep + 314_159) % 900_000
		return []string{b.v1("/logs", append([]string{"limit", "50", "offset", strconv.Itoa(deep)}, b.asOf()...))}
	})
	b.repeat(t, "values of filters", func() []string { return []string{b.api("/logs/facets", b.asOf())} })
}

const repeats = 30

func (b *dashboardBench) asOf() []string {
	return []string{"end", time.Now().UTC().Format(time.RFC3339Nano)}
}

func (b *dashboardBench) view(t *testing.T, name string, filters []string) {
	t.Helper()
	b.repeat(t, name+": rows, and counts over time", func() []string {
		asked := slices.Concat(filters, b.asOf())
		return []string{
			b.v1("/logs", slices.Concat(asked, []string{"limit", "50", "offset", "0"})),
			b.api("/logs/histogram", slices.Concat(asked, []string{"buckets", "80"})),
		}
	})
}

// repeat measures calls that are made at once, until the last of them has answered.
func (b *dashboardBench) repeat(t *testing.T, name string, ask func() []string) {
	t.Helper()
	var took []float64
	for i := range repeats + 1 {
		urls, began := ask(), time.Now()
		var all sync.WaitGroup
		for _, u := range urls {
			all.Go(func() { b.answer(t, u) })
		}
		all.Wait()
		if i > 0 { // the first one opens connections and files
			took = append(took, float64(time.Since(began).Microseconds())/1000)
		}
	}
	b.table.add(name, answerMost, took)
}

func query(pairs []string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "?" + q.Encode()
}

func (b *dashboardBench) v1(path string, pairs []string) string {
	return b.address() + "/dashboard/v1/" + string(b.ws) + path + query(pairs)
}

func (b *dashboardBench) api(path string, pairs []string) string {
	return b.address() + "/dashboard/api/w/" + string(b.ws) + path + query(pairs)
}

// answer reads a URL with the session's cookie.
func (b *dashboardBench) answer(t *testing.T, address string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Error(err)
		return nil
	}
	request.Header.Set("Cookie", b.cookie)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: %d %s %v", address, response.StatusCode, text, err)
	}
	return text
}

// browser measures the page in a real browser.
func (b *dashboardBench) browser(t *testing.T, chromium, packages string) {
	t.Helper()
	sent, err := json.Marshal(object{"base": b.address(), "link": b.link(t), "times": 10})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*limit)
	defer cancel()
	child := exec.CommandContext(ctx, newNode(t), "measure.mjs")
	child.Dir, child.Stdin = "browser", bytes.NewReader(sent)
	child.Env = append(os.Environ(), "CHROMIUM="+chromium, "PACKAGES="+packages, "TMPDIR="+filepath.Dir(b.data))
	out, ok := runChild(t, child)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var got struct {
		Cold, Warm, Paint, WarmCPU, Switched, Filtered []float64
		Wheel, Dragged                                 struct {
			Times []float64
			CPU   float64
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil || !ok {
		t.Errorf("the browser: %v\n%s\nthe server logged:\n%s", err, out, b.log)
		return
	}
	b.table.add("first paint, warm browser", paintMost, got.Paint)
	b.table.add("first rows on the screen, warm browser", 0, got.Warm)
	b.table.add("the same, CPU time of the page's thread", 0, got.WarmCPU)
	b.table.add("first rows on the screen, cold browser", 0, got.Cold)
	b.table.add("first rows on the screen, from another page", paintMost, got.Switched)
	b.table.add("a filter is chosen: its rows on the screen", paintMost, got.Filtered)
	b.table.add("a frame while 180 rows a second scroll", frameMost, got.Wheel.Times)
	b.table.add("a frame while 600 rows a second scroll", 0, got.Dragged.Times)
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("CPU time of a frame while 180 rows a second scroll %.1f ms, 600 rows %.1f ms; the machine's load: %s",
		got.Wheel.CPU, got.Dragged.CPU, load)
}
