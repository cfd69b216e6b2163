package main

import (
	"encoding/json"
	"strings"
)

type delta struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning *string `json:"reasoning_content,omitempty"`
	Calls     []call  `json:"tool_calls,omitempty"`
}

// deltas is a completion in steps: the reasoning word by word, then the text in so many pieces, or each tool call as
// its name and then its arguments in so many pieces. Text is cut between words, JSON anywhere.
func (c *completion) deltas(chunks int) (out []delta) {
	for _, piece := range pieces(strings.SplitAfter(c.Reasoning, " "), words(c.Reasoning)) {
		out = append(out, delta{Reasoning: &piece})
	}
	if c.Content != nil {
		between := " "
		if c.JSON {
			between = ""
		}
		for _, piece := range pieces(strings.SplitAfter(*c.Content, between), chunks) {
			out = append(out, delta{Content: &piece})
		}
	}
	for i, whole := range c.Calls {
		first := whole
		first.Index, first.Function.Arguments = &i, ""
		out = append(out, delta{Calls: []call{first}})
		for _, piece := range pieces(strings.Split(whole.Function.Arguments, ""), chunks) {
			out = append(out, delta{Calls: []call{{Index: &i, Function: function{Arguments: piece}}}})
		}
	}
	return out
}

// pieces joins units into n parts of about the same size, or fewer where there are fewer.
func pieces(units []string, n int) (out []string) {
	n = min(max(n, 1), len(units))
	for i := range n {
		if piece := strings.Join(units[i*len(units)/n:(i+1)*len(units)/n], ""); piece != "" {
			out = append(out, piece)
		}
	}
	return out
}

// stream sends a completion as server-sent events.
func (a *answer) stream(c *completion) {
	var (
		p        = &a.plan
		input    = a.ask.input()
		final    = p.report(input, c.tokens(), words(c.Reasoning)*c.Choices).raw()
		ordinary json.RawMessage // what the other chunks say of usage: null, or nothing
		said     strings.Builder // by one choice, so far
		sent     int
	)
	if a.ask.wantsUsage() && p.usage != "none" && p.usage != "last" {
		ordinary = json.RawMessage("null")
	}
	chunk := func(usage json.RawMessage, choices ...choice) bool {
		return a.event(body{
			c.ID, "chat.completion.chunk", c.Created, c.Model, "fp_provider", append([]choice{}, choices...), usage,
		})
	}

	a.begin()
	if !a.flush() || a.strikes(0) {
		return
	}
	for index := range c.Choices {
		role := &delta{Role: "assistant"}
		if c.Content != nil {
			role.Content = new(string)
		}
		if !chunk(ordinary, choice{Index: index, Delta: role}) {
			return
		}
	}
	for step, d := range c.deltas(p.chunks) {
		if step > 0 && (p.ping != "" && !a.lines(p.ping) || !a.pause(p.chunkDelay)) {
			return
		}
		d.sayTo(&said)
		running := ordinary
		if p.usage == "each" {
			running = p.report(input, words(said.String())*c.Choices, 0).raw()
		}
		for index := range c.Choices {
			if !chunk(running, choice{Index: index, Delta: &d}) {
				return
			}
			sent++
			a.log.change(a.record, func(r *record) { r.ChunksSent = sent })
			if a.strikes(sent) {
				return
			}
		}
	}
	if a.strikes(never) { // there were fewer chunks than the fault was to wait for
		return
	}
	for index := range c.Choices {
		usage := ordinary
		if index == c.Choices-1 && p.inlineUsage && final != nil {
			usage = final
		}
		if !chunk(usage, choice{Index: index, Delta: &delta{}, Finish: &c.Finish}) {
			return
		}
	}
	tells := a.ask.wantsUsage() || p.usage == "last" || p.usage == "each"
	if tells && !p.inlineUsage && final != nil && !chunk(final) {
		return
	}
	if p.noDone || a.lines("data: [DONE]\n\n") {
		a.finish()
	}
}

// sayTo writes what a delta says after what the ones before it said.
func (d delta) sayTo(out *strings.Builder) {
	for _, part := range []*string{d.Content, d.Reasoning} {
		if part != nil {
			out.WriteString(*part)
		}
	}
	for _, call := range d.Calls {
		if call.Function.Name != "" {
			out.WriteString(" " + call.Function.Name + " ")
		}
		out.WriteString(call.Function.Arguments)
	}
}
