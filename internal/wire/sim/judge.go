package sim

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// judgement is what a judge answers.
type judgement struct {
	Grade    float64 `json:"grade"`
	Verdict  string  `json:"verdict"`
	Critique string  `json:"critique"`
}

// isJudge reports whether a model answers with judgements by default.
func (s *settings) isJudge() bool { return s.Sensitivity > 0 || s.Specificity > 0 }

// judge returns the judgement on a text, determined by model, seed and text. A model that is not a judge but is asked
// for a judgement makes no errors.
//
// Grades stay away from the middle, so that a pass threshold from 0.3 to 0.7 agrees with the verdict.
func (s *settings) judge(m *live.Model, text string) judgement {
	truth, right := isGood(text), s.Sensitivity
	if !truth {
		right = s.Specificity
	}
	if !s.isJudge() {
		right = 1
	}
	errs := unit(hash(s.Seed, "verdict", m.ID, text)) >= right
	percent := float64(hash(s.Seed, "grade", m.ID, text) % 31)
	if truth != errs {
		return judgement{
			Grade: (70 + percent) / 100, Verdict: "pass",
			Critique: "Simulated critique: the text meets the rubric.",
		}
	}
	return judgement{
		Grade: percent / 100, Verdict: "fail",
		Critique: "Simulated critique: the text does not meet the rubric.",
	}
}

// members returns the members by name, for a schema that declares all of them.
func (v judgement) members() map[string]jsontext.Value {
	return map[string]jsontext.Value{
		"grade": encode(v.Grade), "verdict": encode(v.Verdict), "critique": encode(v.Critique),
	}
}

// preference returns the members of an answer to a comparison of two responses: the better one by their markers. A
// judge errs as often as with single texts, in each order by itself.
func (q *replyBuilder) preference() map[string]jsontext.Value {
	text := q.userText()
	a, b, found := cutLast(text, "\nRESPONSE B\n")
	if !found {
		return map[string]jsontext.Value{
			"winner": encode("tie"), "critique": encode("Simulated critique: there is nothing to compare."),
		}
	}
	const clear = 0.05 // a smaller difference of quality is a tie
	difference := qualityOf(a) - qualityOf(b)
	winner := "tie"
	if difference >= clear {
		winner = "A"
	} else if difference <= -clear {
		winner = "B"
	}
	if right := (q.Sensitivity + q.Specificity) / 2; q.isJudge() &&
		unit(hash(q.settings.Seed, "winner", q.model.ID, text)) >= right {
		winner = []string{"A", "B", "tie"}[hash(q.settings.Seed, "wrong", q.model.ID, text)%3]
	}
	return map[string]jsontext.Value{
		"winner": encode(winner), "critique": encode("Simulated critique: compared by the quality of both texts."),
	}
}

// cutLast is strings.Cut at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	if at := strings.LastIndex(text, separator); at >= 0 {
		return text[:at], text[at+len(separator):], true
	}
	return text, "", false
}

const markerStart = "[sim quality="

// marker states the quality of the text that it ends, for a judge.
func marker(quality float64) string {
	return markerStart + strconv.FormatFloat(quality, 'f', 2, 64) + "]"
}

// isGood reports whether a text is good.
func isGood(text string) bool { return qualityOf(text) >= 0.5 }

// qualityOf returns the quality of a text: by its last marker or, without one, by a hash.
func qualityOf(text string) float64 {
	for rest := text; ; {
		at := strings.LastIndex(rest, markerStart)
		if at < 0 {
			return 1 - unit(hash(0, "truth", text))
		}
		number, _, closed := strings.Cut(rest[at+len(markerStart):], "]")
		if q, err := strconv.ParseFloat(number, 64); closed && err == nil && q >= 0 && q <= 1 {
			return q
		}
		rest = rest[:at]
	}
}
