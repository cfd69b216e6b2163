package judge

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
)

// completed is a chat completion that says a text.
func completed(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return []byte(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":` + string(quoted) + `,"refusal":null},"finish_reason":"stop"}],"usage":null}`)
}

func kindOf(err error) FailureKind {
	var f *Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

func TestAnAnswerIsAnAssessmentOrAFailure(t *testing.T) {
	const good = `{"grade":0.7,"verdict":"pass","critique":"fine"}`
	for text, want := range map[string]FailureKind{
		good:                                  "",
		" \n\t" + good + "\r\n ":              "",
		"```json\n" + good + "\n```":          "",
		"```\n" + good + "```":                "",
		"\n ```JSON \r\n" + good + "\n``` \n": "",
		`{"critique":"\u0066ine","verdict":"p\u0061ss","grade":7e-1}`: "",

		"":             Empty,
		" \n ":         Empty,
		"pass":         Malformed,
		`"pass"`:       Malformed,
		"null":         Malformed,
		"[]":           Malformed,
		"{":            Malformed,
		"{}":           Malformed,
		"```json":      Malformed,
		"```json\n```": Malformed,
		"``````":       Malformed,
		"```json\n```json\n" + good + "\n```\n```":                       Malformed,
		"```json " + good + "\n```":                                      Malformed,
		"```json\n" + good:                                               Malformed,
		good + "\n```":                                                   Malformed,
		"Sure!\n```json\n" + good + "\n```":                              Malformed,
		"```json\n" + good + "\n``` Done.":                               Malformed,
		good + good:                                                      Malformed,
		good + ".":                                                       Malformed,
		"\ufeff" + good:                                                  Malformed,
		"[" + good + "]":                                                 Malformed,
		`{"grade":0.7,"verdict":"pass"}`:                                 Malformed,
		`{"grade":0.7,"critique":"x"}`:                                   Malformed,
		`{"verdict":"pass","critique":"x"}`:                              Malformed,
		`{"grade":null,"verdict":"pass","critique":"x"}`:                 Malformed,
		`{"grade":0.7,"verdict":null,"critique":"x"}`:                    Malformed,
		`{"grade":0.7,"verdict":"pass","critique":null}`:                 Malformed,
		`{"grade":"0.7","verdict":"pass","critique":"x"}`:                Malformed,
		`{"grade":true,"verdict":"pass","critique":"x"}`:                 Malformed,
		`{"grade":0.7,"verdict":"PASS","critique":"x"}`:                  Malformed,
		`{"grade":0.7,"verdict":"pass ","critique":"x"}`:                 Malformed,
		`{"grade":0.7,"verdict":true,"critique":"x"}`:                    Malformed,
		`{"grade":0.7,"verdict":"pass","critique":["x"]}`:                Malformed,
		`{"Grade":0.7,"verdict":"pass","critique":"x"}`:                  Malformed,
		`{"grade":0.7,"verdict":"pass","critique":"x","sure":true}`:      Malformed,
		`{"grade":0.7,"grade":0.7,"verdict":"pass","critique":"x"}`:      Malformed,
		`{"grade":0.7,"verdict":"fail","verdict":"pass","critique":"x"}`: Malformed,
		`{"grade":NaN,"verdict":"pass","critique":"x"}`:                  Malformed,
		`{"grade":0.7,"verdict":"pass","critique":"x",}`:                 Malformed,
		`{"grade":0.7,"verdict":"pass","critique":"\ud800"}`:             Malformed,
		`{"grade":1.01,"verdict":"pass","critique":"x"}`:                 OutOfRange,
		`{"grade":-0.01,"verdict":"pass","critique":"x"}`:                OutOfRange,
		`{"grade":7,"verdict":"pass","critique":"x"}`:                    OutOfRange,
	} {
		o, err := instructions.Read(completed(text))
		if kindOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err == nil && o != (Assessment{"fine", 0.7, Pass}) || err != nil && o != (Assessment{}) {
			t.Errorf("%q: %+v", text, o)
		}
	}
	if _, err := instructions.Read(completed(`{"grade":1e999,"verdict":"pass","critique":"x"}`)); kindOf(err) != OutOfRange && kindOf(err) != Malformed {
		t.Error(err)
	}
}

func TestACompletionWithoutAnAnswerIsAFailureWithItsKind(t *testing.T) {
	const good = `"{\"grade\":1,\"verdict\":\"pass\",\"critique\":\"\"}"`
	for completion, want := range map[string]FailureKind{
		`{"choices":[{"message":{"content":` + good + `},"finish_reason":"stop"}]}`:                                     "",
		`{"choices":[{"message":{"content":` + good + `}}]}`:                                                            "",
		`{"choices":[{"message":{"content":[{"type":"text","text":` + good + `}],"refusal":""},"finish_reason":null}]}`: "",

		``:                                   Unanswered,
		`<html>`:                             Unanswered,
		`null`:                               Unanswered,
		`{"choices":[]}`:                     Unanswered,
		`{"error":{"message":"overloaded"}}`: Unanswered,
		`{"choices":[{"message":{"content":5}}]}`:                                                                 Unanswered,
		`{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}`:                                       Empty,
		`{"choices":[{"finish_reason":"stop"}]}`:                                                                  Empty,
		`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"x"}]},"finish_reason":"tool_calls"}]}`:       Empty,
		`{"choices":[{"message":{"content":` + good + `},"finish_reason":"length"}]}`:                             Truncated,
		`{"choices":[{"message":{"content":""},"finish_reason":"length"}]}`:                                       Truncated,
		`{"choices":[{"message":{"content":` + good + `},"finish_reason":"content_filter"}]}`:                     Refused,
		`{"choices":[{"message":{"content":` + good + `,"refusal":"I cannot."},"finish_reason":"stop"}]}`:         Refused,
		`{"choices":[{"message":{"content":null,"refusal":"I cannot."},"finish_reason":"stop"}]}`:                 Refused,
		`{"choices":[{"message":{"content":[{"type":"refusal","refusal":"I cannot."}]},"finish_reason":"stop"}]}`: Refused,
		`{"choices":[{"message":{"content":[{"type":"image_url"}]},"finish_reason":"stop"}]}`:                     Malformed,
	} {
		if _, err := instructions.Read([]byte(completion)); kindOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("%s: %v, want %q", completion, err, want)
		}
	}
}

func TestAGradeDecidesOnTheGradedScaleAndTheVerdictOnTheBinaryOne(t *testing.T) {
	for _, c := range []struct {
		scale     Scale
		threshold float64
		grade     string
		verdict   Verdict
		want      FailureKind
	}{
		{Graded, 0.5, "0.5", Pass, ""},
		{Graded, 0.5, "0.49", Fail, ""},
		{Graded, 0.5, "0.5", Fail, Contradiction},
		{Graded, 0.5, "0.49", Pass, Contradiction},
		{Graded, 1, "1", Pass, ""},
		{Graded, 1, "0.999", Fail, ""},
		{Graded, 0.1, "0", Fail, ""},
		{Graded, 0.1, "0", Pass, Contradiction},
		{Binary, 0.5, "0", Pass, ""},
		{Binary, 0.5, "1", Fail, ""},
		{Binary, 0.5, "-0", Pass, ""},
	} {
		b := Instructions{Scale: c.scale, Threshold: c.threshold}
		o, err := b.Read(completed(`{"grade":` + c.grade + `,"verdict":"` + string(c.verdict) + `","critique":""}`))
		if kindOf(err) != c.want || err == nil && (o.Verdict != c.verdict || math.Signbit(o.Grade)) {
			t.Errorf("%+v: %+v, %v", c, o, err)
		}
	}
}

func TestCritiquesAndDetailsAreCutBetweenCharacters(t *testing.T) {
	for _, c := range []struct{ said, kept string }{
		{strings.Repeat("é", MostCritique), strings.Repeat("é", MostCritique)},
		{strings.Repeat("é", MostCritique+1), strings.Repeat("é", MostCritique-1) + "…"},
		{strings.Repeat("x", 9*MostCritique), strings.Repeat("x", MostCritique-1) + "…"},
	} {
		o, err := instructions.Read(completed(`{"grade":1,"verdict":"pass","critique":"` + c.said + `"}`))
		if err != nil || o.Critique != c.kept {
			t.Errorf("%d characters of %d: %v", utf8.RuneCountInString(o.Critique), utf8.RuneCountInString(c.said), err)
		}
	}
	for _, completion := range []string{`{"choices":[{"message":{"content":"%"},"finish_reason":"length"}]}`, `{"choices":[{"message":{"content":"%"}}]}`} {
		_, err := instructions.Read([]byte(strings.Replace(completion, "%", "x"+strings.Repeat("é", 5000), 1)))
		if f, ok := errors.AsType[*Failure](err); !ok || len(f.Detail) > 1100 || !utf8.ValidString(f.Detail) {
			t.Error(err)
		}
	}
}

func TestEveryFailureIsInTheTable(t *testing.T) {
	seen := map[FailureKind]bool{}
	for _, row := range FailureKinds() {
		if seen[row.Kind] || !strings.HasSuffix(row.When, ".") {
			t.Error(row)
		}
		seen[row.Kind] = true
	}
	for _, kind := range []FailureKind{Unanswered, Empty, Refused, Truncated, Malformed, OutOfRange, Contradiction} {
		if !seen[kind] {
			t.Error(kind)
		}
	}
}

func TestInstructionsAreCheckedFieldByField(t *testing.T) {
	rubric := strings.Repeat("é", MostRubric)
	for _, c := range []struct {
		instructions Instructions
		field        string
	}{
		{Instructions{Rubric: "R", Scale: Binary, Threshold: 0.5}, ""},
		{Instructions{Rubric: rubric, Scale: Graded, Threshold: 1}, ""},
		{Instructions{Rubric: "R", Scale: Graded, Threshold: 0.001}, ""},
		{Instructions{Rubric: rubric + "x", Scale: Graded, Threshold: 1}, "rubric"},
		{Instructions{Rubric: " \n", Scale: Binary, Threshold: 0.5}, "rubric"},
		{Instructions{Rubric: "\xff", Scale: Binary, Threshold: 0.5}, "rubric"},
		{Instructions{Rubric: "R", Scale: "five stars", Threshold: 0.5}, "scale"},
		{Instructions{Rubric: "R", Threshold: 0.5}, "scale"},
		{Instructions{Rubric: "R", Scale: Binary, Threshold: 0}, "pass_threshold"},
		{Instructions{Rubric: "R", Scale: Binary, Threshold: -1}, "pass_threshold"},
		{Instructions{Rubric: "R", Scale: Binary, Threshold: 1.001}, "pass_threshold"},
		{Instructions{Rubric: "R", Scale: Binary, Threshold: math.NaN()}, "pass_threshold"},
	} {
		err := c.instructions.Check()
		f, refused := errors.AsType[*fault.Fault](err)
		if (err == nil) != (c.field == "") || refused && f.Field != c.field {
			t.Errorf("%.20q %s %v: %v, want %s", c.instructions.Rubric, c.instructions.Scale, c.instructions.Threshold, err, c.field)
		}
	}
}

// What is accepted is written, and read again, as the same assessment.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		`{"grade":0.7,"verdict":"pass","critique":"fine"}`, "```json\n{\"grade\":0,\"verdict\":\"fail\",\"critique\":\"```\"}\n```", "{}", "``````", `{"grade":-0,"verdict":"pass","critique":"\u2028é"}`,
	} {
		f.Add(completed(text), true, 0.5)
		f.Add([]byte(text), false, 0.5)
	}
	f.Add([]byte(`{"choices":[{"message":{"content":[{"type":"text","text":"x"}],"refusal":""},"finish_reason":null}]}`), true, 1.0)
	f.Fuzz(func(t *testing.T, completion []byte, graded bool, threshold float64) {
		b := Instructions{Scale: Binary, Threshold: threshold}
		if graded {
			b.Scale = Graded
		}
		texts := [][]byte{completion}
		if quoted, err := json.Marshal(string(completion)); err == nil {
			texts = append(texts, []byte(`{"choices":[{"message":{"content":`+string(quoted)+`}}]}`))
		}
		for _, text := range texts {
			_, _ = ReadImprovement(text)
			_, _ = ReadSuggestions(text)
			o, err := b.Read(text)
			if err != nil {
				if kindOf(err) == "" || o != (Assessment{}) {
					t.Fatalf("%v, %+v", err, o)
				}
				continue
			}
			if o.Grade < 0 || o.Grade > 1 || graded && (o.Verdict == Pass) != (o.Grade >= threshold) || utf8.RuneCountInString(o.Critique) > MostCritique {
				t.Fatalf("%+v", o)
			}
			written, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := b.Read(completed(string(written))); err != nil || again != o {
				t.Fatalf("%+v, %v; was %+v", again, err, o)
			}
		}
	})
}
