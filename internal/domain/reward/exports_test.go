package reward_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sovereign/internal/domain/reward"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// An exported file is the lines of an export, each as its schema says, and its headers.
type exported struct {
	lines                  []map[string]any
	text                   string
	count, scanned, capped string
}

// export downloads an export as a member, and validates every line.
func (f *fixture) export(t *testing.T, id, query string) exported {
	t.Helper()
	got := f.client.Do(t, f.client.Member, http.MethodGet, "/v1/reward/sessions/"+id+"/export?"+query, "")
	if got.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", query, got.Code, got.Body)
	}
	format := "rl"
	for _, name := range []string{"sft", "pairwise"} {
		if strings.Contains(query, "format="+name) {
			format = name
		}
	}
	h := got.Header()
	if h.Get("Content-Type") != "application/jsonl; charset=utf-8" ||
		h.Get("Content-Disposition") != fmt.Sprintf(`attachment; filename="%s-%s.jsonl"`, id, format) {
		t.Errorf("%v", h)
	}
	e := exported{
		text: got.Body.String(), count: h.Get("X-Service-Export-Count"), scanned: h.Get("X-Service-Export-Scanned"),
		capped: h.Get("X-Service-Export-Capped"),
	}
	of, err := jsonschema.NewCompiler().Compile("testdata/export-" + format + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(e.text) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := of.Validate(v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		e.lines = append(e.lines, v)
	}
	if e.count != strconv.Itoa(len(e.lines)) {
		t.Errorf("%s: %d lines, and the header says %s", query, len(e.lines), e.count)
	}
	return e
}

// A row is an item for the table.
type row struct {
	step, id, prompt, completion string // JSON
	reward                       any    // nil for none
	verdict                      judge.Verdict
}

// fill writes scored items into the tables.
func (f *fixture) fill(t *testing.T, session string, rows []row) {
	t.Helper()
	texts, items := map[[sha256.Size]byte]string{}, make([][]any, len(rows))
	for i, r := range rows {
		p, c := sha256.Sum256([]byte(r.prompt)), sha256.Sum256([]byte(r.completion))
		texts[p], texts[c] = r.prompt, r.completion
		content := sha256.Sum256(fmt.Append(nil, p, c))
		items[i] = []any{
			dbtest.Mine, session, r.step, r.id, content[:], i + 1, p[:], c[:], "gold", r.reward, string(r.verdict),
			`[{"criterion_id":"crit_1","grade":1,"verdict":"pass","critique":"fine"}]`, `[]`, 1_700_000_000_000_000, 0,
		}
	}
	var bodies [][]any
	for digest, body := range texts {
		bodies = append(bodies, []any{dbtest.Mine, session, digest[:], body})
	}
	_, err := f.DB.Tx(t.Context(), func(tx *db.Tx) error {
		across := tx.Across("test")
		texts := []string{"workspace_id", "session_id", "digest", "body"}
		if err := db.Insert(t.Context(), across, "reward_texts", texts, bodies); err != nil {
			return err
		}
		return db.Insert(t.Context(), across, "reward_items", []string{
			"workspace_id", "session_id", "step", "item_id", "content", "position", "prompt", "completion", "label", "reward",
			"verdict", "grades", "flags", "scored_at", "checked",
		}, items)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func quoted(text string) string { return fmt.Sprintf("%q", text) }

func TestExportsHaveTheLinesThatTheirFormatSelects(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.fill(t, s.ID, []row{
			{"1", "a", quoted("p"), quoted("best"), 1.0, judge.Pass},
			{"1", "b", quoted("p"), quoted("good"), 0.9, judge.Pass},
			{"1", "c", quoted("p"), quoted("fair"), 0.8, judge.Pass},
			{"1", "d", quoted("p"), quoted("bad"), 0.1, judge.Fail},
			{"1", "e", quoted("p"), quoted("lost"), nil, ""},
			{"1", "f", quoted("q"), quoted("high, but a fail"), 0.95, judge.Fail},
			{"2", "g", quoted("p"), quoted("of another step"), 0.0, judge.Fail},
			{"2", "h", quoted("r"), quoted("lower"), 0.1, judge.Fail},
			{"2", "i", quoted("r"), quoted("higher"), 0.3, judge.Fail}, // 0.3 - 0.1 is less than 0.2 in floating point
			{"2", "j", quoted("s"), quoted("just below"), 0.5, judge.Pass},
			{"2", "k", quoted("s"), quoted("just above"), 0.69, judge.Pass},
		})
		all := f.export(t, s.ID, "")
		if len(all.lines) != 10 || all.scanned != "10" || all.capped != "false" {
			t.Errorf("%+v", all)
		}
		want := map[string]any{
			"id": "a", "step": "1", "prompt": "p", "completion": "best", "label": "gold", "reward": 1.0, "verdict": "pass",
			"grades": []any{map[string]any{"criterion_id": "crit_1", "grade": 1.0, "verdict": "pass", "critique": "fine"}},
			"flags":  []any{}, "scored_at": "2023-11-14T22:13:20.000Z",
		}
		if got := fmt.Sprint(all.lines[0]); got != fmt.Sprint(want) {
			t.Errorf("%s, want %v", got, want)
		}
		if strings.Contains(all.text, `"reward":1,`) || !strings.Contains(all.text, `"reward":1.0,`) {
			t.Error("a reward of 1 is written as an integer")
		}
		if strings.Contains(all.text, "lost") {
			t.Error("an item without a reward is exported")
		}
		if one := f.export(t, s.ID, "step=1"); len(one.lines) != 5 {
			t.Errorf("of step 1: %d", len(one.lines))
		}
		column := func(e exported, name string) (values []string) {
			for _, l := range e.lines {
				values = append(values, fmt.Sprint(l[name]))
			}
			return values
		}
		if got := column(f.export(t, s.ID, "format=sft"), "completion"); !slices.Equal(got, []string{"best", "good"}) {
			t.Error(got)
		}
		if got := column(f.export(t, s.ID, "format=sft&min_grade=0.8"), "weight"); !slices.Equal(got, []string{"1", "0.9", "0.8"}) {
			t.Error(got)
		}
		pairs := f.export(t, s.ID, "format=pairwise")
		chosen, rejected := column(pairs, "chosen"), column(pairs, "rejected")
		if !slices.Equal(chosen, []string{"best", "best", "good", "fair", "higher"}) ||
			!slices.Equal(rejected, []string{"fair", "bad", "bad", "bad", "lower"}) || pairs.scanned != "10" {
			t.Errorf("%v over %v", chosen, rejected)
		}
		if capped := f.export(t, s.ID, "limit=3"); len(capped.lines) != 3 || capped.capped != "true" || capped.scanned != "3" {
			t.Errorf("%+v", capped)
		}
	})
}

// The columns of a file have one type each: texts become messages where any item has messages.
func TestColumnsOfAnExportHaveOneType(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		n := wanted(f.certified(30).ID)
		n.Agentic = true
		s := f.create(n)
		f.fill(t, s.ID, []row{
			{"1", "a", quoted("p"), quoted("text"), 1.0, judge.Pass},
			{
				"1", "b", `[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"p"},{"type":"image_url","image_url":{"url":"u"}}]}]`,
				`[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}],"reasoning":"hm"},
				  {"role":"tool","tool_call_id":"c1","content":"result"},{"role":"assistant","content":"done"}]`, 0.95, judge.Pass,
			},
		})
		for _, format := range []string{"rl", "sft"} {
			e := f.export(t, s.ID, "format="+format)
			for _, l := range e.lines {
				for _, name := range []string{"prompt", "completion"} {
					if _, ok := l[name].([]any); !ok {
						t.Errorf("%s: %s is %v", format, name, l[name])
					}
				}
			}
			if !strings.Contains(e.text, `"completion":[{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"result","tool_call_id":"c1"},{"role":"assistant","content":"done"}]`) ||
				!strings.Contains(e.text, `"prompt":[{"role":"user","content":"p"}]`) {
				t.Error(e.text)
			}
		}
		texts := f.create(wanted(f.certified(30).ID))
		f.fill(t, texts.ID, []row{{"1", "a", quoted("p"), quoted("text"), 1.0, judge.Pass}})
		if e := f.export(t, texts.ID, "format=sft"); e.text != `{"prompt":"p","completion":"text","weight":1.0}`+"\n" {
			t.Error(e.text)
		}
	})
}

func TestSerialAnExportReadsAtMostTenThousandItems(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		rows := make([]row, reward.MaxExport+1)
		for i := range rows {
			rows[i] = row{"1", strconv.Itoa(i), quoted(fmt.Sprint("p", i/4)), quoted(fmt.Sprint("c", i)), float64(i%4) / 4, judge.Pass}
		}
		f.fill(t, s.ID, rows)
		for query, lines := range map[string]int{"": 10_000, "format=sft&min_grade=0.5": 5000, "format=pairwise": 15_000} {
			if e := f.export(t, s.ID, query); len(e.lines) != lines || e.scanned != "10000" || e.capped != "true" {
				t.Errorf("%s: %d lines, scanned %s, capped %s", query, len(e.lines), e.scanned, e.capped)
			}
		}
		f.exec(`DELETE FROM reward_items WHERE session_id = $1 AND item_id = '10000'`, s.ID)
		if e := f.export(t, s.ID, ""); e.capped != "false" || e.count != "10000" {
			t.Errorf("%s lines, capped %s", e.count, e.capped)
		}
	})
}

// 2,000 completions of one prompt make a million pairs: the scan ends where there would be too many lines.
func TestSerialPairsOfOnePromptAreCutOff(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		rows := make([]row, 2000)
		for i := range rows {
			rows[i] = row{"1", strconv.Itoa(i), quoted("p"), quoted(fmt.Sprint("c", i)), float64(i % 2), judge.Pass}
		}
		f.fill(t, s.ID, rows)
		e, err := f.store.Export(t.Context(), dbtest.Mine, s.ID, reward.ExportRequest{Format: "pairwise"})
		if err != nil || !e.Capped || e.Scanned != 632 || e.Count != 99_856 { // the pairs of 632 are 316², of 633 316·317
			t.Errorf("%+v, %v", e, err)
		}
		var out bytes.Buffer
		if err := e.Write(t.Context(), &out); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != e.Count {
			t.Errorf("%d lines, %v", bytes.Count(out.Bytes(), []byte("\n")), err)
		}
	})
}

func TestAnExportIsRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		for query, status := range map[string]int{
			"format=csv": 400, "min_grade=0.5": 400, "format=pairwise&min_grade=0.5": 400, "format=sft&min_grade=1.1": 400,
			"format=sft&min_grade=-0.1": 400, "limit=0": 400, "limit=10001": 400, "other=1": 400,
		} {
			if got := f.client.Do(t, f.client.Owner, http.MethodGet, "/v1/reward/sessions/"+s.ID+"/export?"+query, ""); got.Code != status {
				t.Errorf("%s: %d %s", query, got.Code, got.Body)
			}
		}
		if got := f.client.Do(t, f.client.Owner, http.MethodGet, "/v1/reward/sessions/rs_0/export", ""); got.Code != 404 {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		if _, err := f.store.Export(t.Context(), dbtest.Theirs, s.ID, reward.ExportRequest{}); code(err) != "not_found" {
			t.Error(err)
		}
		if _, err := f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, s.ID); err != nil {
			t.Fatal(err)
		}
		if e := f.export(t, s.ID, ""); e.text != "" || e.count != "0" {
			t.Errorf("%+v", e)
		}
		if err := f.store.Purge(t.Context(), dbtest.Mine, dbtest.Ann, s.ID); err != nil {
			t.Fatal(err)
		}
		if got := f.client.Do(t, f.client.Owner, http.MethodGet, "/v1/reward/sessions/"+s.ID+"/export", ""); got.Code != 404 {
			t.Errorf("a purged session: %d %s", got.Code, got.Body)
		}
	})
}

// An export that was scored by the server itself validates too, and what was deleted since its count is an error.
func TestScoredItemsAreExported(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := f.active(t)
		f.scores(t, s.ID, "1", numbered(0, 20)...)
		exported := f.export(t, s.ID, "step=1")
		for i := range 20 {
			if !strings.Contains(exported.text, fmt.Sprintf(`"completion":"reply to item %d"`, first+i)) {
				t.Errorf("item %d is missing", i)
			}
		}
		e, err := f.store.Export(t.Context(), dbtest.Mine, s.ID, reward.ExportRequest{})
		if err != nil {
			t.Fatal(err)
		}
		f.exec(`DELETE FROM reward_items WHERE session_id = $1 AND position = 7`, s.ID)
		if err := e.Write(t.Context(), new(bytes.Buffer)); err == nil {
			t.Error("a line is missing, and the export does not say so")
		}
	})
}
