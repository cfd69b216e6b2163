package sim

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// A verdict is what a judge answers.
type verdict struct {
	Grade    float64 `json:"grade"`
	Verdict  string  `json:"verdict"`
	Critique string  `json:"critique"`
}

// judges reports whether a model answers with verdicts unless it is asked for something else.
func (s *settings) judges() bool { return s.Sensitivity > 0 || s.Specificity > 0 }

// judge is m's verdict on a text: the same model, seed and text have the same. A model that is no judge, but is asked
// for a verdict, does not err.
//
// Grades keep away from the middle, so that a pass threshold from 0.3 to 0.7 agrees with the verdict.
func (s *settings) judge(m *live.Model, text string) verdict {
	truth, right := good(text), s.Sensitivity
	if !truth {
		right = s.Specificity
	}
	if !s.judges() {
		right = 1
	}
	errs := unit(hash(s.Seed, "verdict", m.ID, text)) >= right
	percent := float64(hash(s.Seed, "grade", m.ID, text) % 31)
	if truth != errs {
		return verdict{Grade: (70 + percent) / 100, Verdict: "pass", Critique: "Simulated critique: the text meets the rubric."}
	}
	return verdict{Grade: percent / 100, Verdict: "fail", Critique: "Simulated critique: the text does not meet the rubric."}
}

// members are the values of a verdict by name, for a schema that asks for all of them.
func (v verdict) members() map[string]jsontext.Value {
	return map[string]jsontext.Value{"grade": encode(v.Grade), "verdict": encode(v.Verdict), "critique": encode(v.Critique)}
}

const markerStart = "[sim quality="

// marker tells a judge the quality of the text that it ends.
func marker(quality float64) string {
	return markerStart + strconv.FormatFloat(quality, 'f', 2, 64) + "]"
}

// good is the truth about a text: its last marker says so or, where there is none, a hash of it does.
func good(text string) bool {
	for rest := text; ; {
		at := strings.LastIndex(rest, markerStart)
		if at < 0 {
			return unit(hash(0, "truth", text)) < 0.5
		}
		number, _, closed := strings.Cut(rest[at+len(markerStart):], "]")
		if q, err := strconv.ParseFloat(number, 64); closed && err == nil && q >= 0 && q <= 1 {
			return q >= 0.5
		}
		rest = rest[:at]
	}
}
