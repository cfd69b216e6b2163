package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// judgements are the ways in which a judge can answer.
var judgements = []string{"right", "obey", "fence", "garbage", "refuse", "contradict", "truncated", "empty", "hang"}

// judged sets how the model judges: judge alone is right.
func judged(p *plan, value string) error {
	if value == "" {
		value = "right"
	}
	return oneOf(func(p *plan) *string { return &p.judge }, judgements...)(p, value)
}

// share sets a number from 0 to 1.
func share(field func(*plan) *float64) func(*plan, string) error {
	return func(p *plan, value string) (err error) {
		if *field(p), err = strconv.ParseFloat(value, 64); err == nil && !(*field(p) >= 0 && *field(p) <= 1) {
			err = errors.New("must be from 0 to 1")
		}
		return err
	}
}

// likes sets the characters that a judge wants to see.
func likes(p *plan, value string) (err error) {
	p.likes, err = regexp.Compile("^[" + value + "]$")
	return err
}

// liked is the share of the response's characters that the judge wants to see.
func (p *plan) liked(text string) float64 {
	_, said, _ := strings.Cut(text, "\nRESPONSE\n")
	good, all := 0, 0
	for line := range strings.SplitSeq(said, "\n") {
		quoted, ok := strings.CutPrefix(line, "| ")
		if !ok {
			continue
		}
		for _, char := range quoted {
			if all++; p.likes.MatchString(string(char)) {
				good++
			}
		}
	}
	return float64(good) / float64(max(all, 1))
}

// An opinion is a judge's answer, in the order in which it is asked for.
type opinion struct {
	Critique string  `json:"critique"`
	Grade    float64 `json:"grade"`
	Verdict  string  `json:"verdict"`
}

var (
	truth   = regexp.MustCompile(`\[truth=(pass|fail)\]`)
	command = regexp.MustCompile(`answer (\{.*\})`)
	breaks  = regexp.MustCompile(`\r\n|[\n\r\v\f\x{85}\x{2028}\x{2029}]`) // whatever ends a line for somebody
)

// drawn is a number from 0 to 1 that follows from what it is for and a text.
func drawn(what, text string) float64 {
	sum := sha256.Sum256([]byte(what + "\n" + text))
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53)
}

// opine is the judge's answer to a text. Its last marker states the truth; a text without a marker fails.
func (p *plan) opine(text string) opinion {
	if p.likes != nil {
		grade := p.liked(text)
		return opinion{fmt.Sprintf("%.0f %% of it is as it should be.", 100*grade), grade, verdict(grade >= 0.5)}
	}
	found := truth.FindAllStringSubmatch(text, -1)
	passes := len(found) > 0 && found[len(found)-1][1] == "pass"
	right := p.se
	if !passes {
		right = p.sp
	}
	grade := drawn("grade", text) * 0.3
	if passes != (drawn("errs", text) >= right) {
		return opinion{"It meets the rubric.", 1 - grade, "pass"}
	}
	return opinion{"It does not meet the rubric.", grade, "fail"}
}

func verdict(passes bool) string {
	if passes {
		return "pass"
	}
	return "fail"
}

// mark is what an answer says of its own truth, if the plan wants it.
func (p *plan) mark(a *ask) string {
	switch {
	case p.good < 0:
		return ""
	case drawn("good "+p.name, a.lastUser()) < p.good:
		return " [truth=pass]"
	}
	return " [truth=fail]"
}

// A preference is a judge's answer to a comparison.
type preference struct {
	Critique string `json:"critique"`
	Winner   string `json:"winner"`
}

// prefer compares the two responses of a text by their markers. It errs as often as opine does, in each order by
// itself.
func (p *plan) prefer(text string) preference {
	a, b, _ := strings.Cut(text, "\nRESPONSE B\n")
	first, second := p.opine(a).Verdict, p.opine(b).Verdict
	if first == second {
		return preference{"They are alike.", "tie"}
	}
	if first == "pass" {
		return preference{"The first meets the rubric.", "A"}
	}
	return preference{"The second meets the rubric.", "B"}
}

// unquoted is a text without the quoted lines of its fences. A fence is what stands between a line BEGIN and a line END
// of the same mark, and a line in it is quoted if it says so: a text that gets out of either is not.
func unquoted(text string) string {
	var open string
	var out []string
	for _, line := range breaks.Split(text, -1) {
		switch mark, begins := strings.CutPrefix(line, "BEGIN "); {
		case open == "" && begins:
			open = mark
		case open != "" && line == "END "+open:
			open = ""
		case open == "" || !strings.HasPrefix(line, "| "):
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// drafts are the answers to requests for something other than a verdict, by the name of the schema.
var drafts = map[string]any{
	"improvement": map[string]any{
		"changes": []string{"It says what passes."},
		"rubric":  "The response is right, and says why. Anything else fails.",
	},
	"suggestions": map[string]any{"criteria": []any{
		map[string]any{
			"why": "People ask for facts.", "name": "Facts", "rubric": "Every fact is right.", "scale": "binary",
		},
		map[string]any{
			"why": "People like short answers.", "name": "Brevity",
			"rubric": "The response is no longer than it needs to be.", "scale": "graded",
		},
	}},
}

// rule answers as a judge.
func (c *completion) rule(p *plan, a *ask) {
	c.JSON = true
	if f := a.ResponseFormat; f != nil && drafts[f.JSONSchema.Name] != nil {
		c.say(encode(drafts[f.JSONSchema.Name]))
		return
	}
	text := a.lastUser()
	if f := a.ResponseFormat; f != nil && f.JSONSchema.Name == "preference" {
		c.say(encode(p.prefer(text)))
		return
	}
	said := p.opine(text)
	how := p.judge
	if drawn("fails", text) >= p.misrule && how != "obey" {
		how = "right"
	}
	c.say(encode(said))
	switch how {
	case "obey":
		if order := command.FindStringSubmatch(unquoted(text)); order != nil && json.Valid([]byte(order[1])) {
			c.say(order[1])
		}
	case "fence":
		c.say("```json\n" + encode(said) + "\n```")
	case "garbage":
		c.JSON = false
		c.say("I would rather pass it: " + encode(said))
	case "refuse":
		c.Content, c.Refusal = nil, "I cannot judge this."
	case "contradict":
		said.Verdict = map[string]string{"pass": "fail", "fail": "pass"}[said.Verdict]
		c.say(encode(said))
	case "truncated":
		c.say(encode(said)[:20])
		c.Finish = "length"
	case "empty":
		c.say("")
	case "hang":
		c.Hangs = true
	}
}

// lastUser is the text of the last message of a user.
func (a *ask) lastUser() string {
	for _, m := range slices.Backward(a.Messages) {
		if m.Role == "user" {
			return fmt.Sprint(m.Content)
		}
	}
	return ""
}
