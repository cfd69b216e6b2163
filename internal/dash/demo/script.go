package demo

import (
	"fmt"
	"math"
)

// The models of a demo, by what their answers are worth: 80 % of chat's are good and 95 % of large's; flaky fails now
// and then.
const (
	chatModel  = "sim/chat"
	largeModel = "sim/chat-large"
	flakyModel = "sim/flaky"
	judgeModel = "sim/judge"
)

// assistant is the alias that the demo's traffic goes to at last, with a canary.
const assistant = "assistant"

// How many exchanges of each kind a demo has, in this order.
const (
	graded      = 300 // half of their answers are good, so that people have failures to grade
	ordinary    = 150
	runs        = 12
	runLength   = 4
	failing     = 8
	canaries    = 170
	beforeSplit = graded + ordinary + runs*runLength + failing
	exchanges   = beforeSplit + canaries
)

type object = map[string]any

// An exchange is a chat request of the script.
type exchange struct {
	tag, trace string
	body       object
}

// A topic is what a part of the traffic is about: a tag, a system prompt and what people ask.
type topic struct {
	tag, prompt string
	questions   []string
}

// topics are the parts of the traffic. Every question gets a number, so that no two are the same.
var topics = []topic{
	{"support", "You help the customers of Zephyrine, a shop for bicycles. Answer what was asked, briefly and politely.", []string{
		"Where is my order %d? It was to arrive on Tuesday.",
		"The brakes of the bicycle from order %d squeak. What can I do?",
		"Can I still change the address of order %d?",
		"Order %d came with the wrong saddle. How do I send it back?",
		"Does the warranty of order %d cover a broken spoke?",
	}},
	{"billing", "You answer questions about invoices of Zephyrine. Name the amount and the date. Never guess a number.", []string{
		"Why was I charged twice for invoice %d?",
		"Please send me invoice %d again, with our VAT number.",
		"When is invoice %d due, and can I pay it in two parts?",
		"Invoice %d shows shipping that was promised to be free.",
	}},
	{"search", "You rewrite what a visitor of Zephyrine types into a search for the catalog. Answer with the search alone.", []string{
		"something to carry a child of %d months to kindergarten",
		"light for night rides, brighter than %d lumen, not too dear",
		"a lock that a thief needs more than %d minutes for",
		"winter gloves that still let me use the bell, under %d francs",
	}},
}

// ask returns question n of a topic, as messages.
func (t *topic) ask(n int) []object {
	return []object{{"role": "system", "content": t.prompt}, {"role": "user", "content": t.question(n)}}
}

func (t *topic) question(n int) string { return fmt.Sprintf(t.questions[n%len(t.questions)], 1000+n) }

// script returns exchange n of a demo. It depends on n alone, so that a fill that was interrupted goes on with the next
// one.
func script(n int) exchange {
	t := &topics[n%len(topics)]
	plain := exchange{tag: t.tag, body: object{"model": chatModel, "messages": t.ask(n), "max_tokens": 300}}
	switch {
	case n < graded:
		plain.body["sim"] = object{"quality": 0.5}
	case n < graded+ordinary:
		if n%5 < 2 {
			plain.body["model"] = largeModel
		}
		if n%4 == 0 {
			plain.body["stream"] = true
		}
	case n < graded+ordinary+runs*runLength:
		at := n - graded - ordinary
		return agentStep(at/runLength, at%runLength)
	case n < beforeSplit:
		plain.body["model"] = flakyModel
	default:
		plain.body["model"] = assistant
	}
	return plain
}

// tools are what the agent of the demo's runs may call.
var tools = []object{
	{"type": "function", "function": object{
		"name": "lookup_order", "description": "Find an order by its number",
		"parameters": object{
			"type": "object", "properties": object{"number": object{"type": "integer"}}, "required": []string{"number"},
		},
	}},
	{"type": "function", "function": object{
		"name": "refund", "description": "Pay an amount back to the customer",
		"parameters": object{
			"type": "object", "required": []string{"number", "amount"},
			"properties": object{"number": object{"type": "integer"}, "amount": object{"type": "number"}},
		},
	}},
}

// traceOf is the id of a run.
func traceOf(run int) string { return fmt.Sprintf("zephyrine-refund-%02d", run+1) }

// agentStep returns a step of an agent's run: it looks an order up, tells what it found, refunds it, and says so.
func agentStep(run, step int) exchange {
	number := 7000 + run
	called := func(name, arguments string) object {
		return object{"role": "assistant", "content": nil, "tool_calls": []object{{
			"id": fmt.Sprintf("call_%s_%d", name, number), "type": "function",
			"function": object{"name": name, "arguments": arguments},
		}}}
	}
	result := func(name, text string) object {
		return object{"role": "tool", "tool_call_id": fmt.Sprintf("call_%s_%d", name, number), "content": text}
	}
	history := []object{
		{
			"role":    "system",
			"content": "You are Zephyrine's agent for refunds. Look an order up before you refund anything.",
		},
		{"role": "user", "content": fmt.Sprintf("Please look up order %d: the frame is scratched.", number)},
		called("lookup_order", fmt.Sprintf(`{"number":%d}`, number)),
		result("lookup_order", fmt.Sprintf(`{"number":%d,"item":"frame, blue","paid":%d.50}`, number, 200+run)),
		{"role": "assistant", "content": fmt.Sprintf("Order %d is a blue frame. Shall I refund a part of it?", number)},
		{"role": "user", "content": fmt.Sprintf("Yes, refund 50 of order %d.", number)},
		called("refund", fmt.Sprintf(`{"number":%d,"amount":50}`, number)),
		result("refund", `{"refunded":50}`),
	}
	upTo := [runLength]int{2, 4, 6, 8}[step]
	body := object{"model": largeModel, "messages": history[:upTo], "tools": tools, "max_tokens": 300}
	if run%3 == 0 {
		body["model"] = chatModel
	}
	return exchange{tag: "agent", trace: traceOf(run), body: body}
}

// A grader is a person who graded in the demo, and how often this one errs: every so many items, from the first on.
type grader struct {
	name       string
	share      int // grades every so many items
	errs, from int
}

// graders are two people who do not always agree; what they get wrong is planted, for adjudication to find.
var graders = []grader{
	{"ana (demo)", 1, 29, 7},
	{"ben (demo)", 4, 24, 12},
}

// right reports whether the grader grades item n as it deserves.
func (g *grader) right(n int) bool { return n%g.errs != g.from }

// reward returns an item of a reward session: of later steps more are good.
func rewardItem(step, n int) object {
	t := &topics[(step+n)%len(topics)]
	good := math.Mod(float64(step*37+n)*0.618034, 1) < 0.45+0.08*float64(step)
	quality := 0.12
	if good {
		quality = 0.88
	}
	number := 50_000 + 1000*step + n
	return object{
		"id": fmt.Sprintf("item-%d-%d", step, n), "prompt": t.question(number),
		"completion": fmt.Sprintf("Zephyrine's policy answers question %d. [sim quality=%.2f]", number, quality),
	}
}
