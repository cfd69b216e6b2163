package main

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A plan is how one request is answered.
type plan struct {
	name                string // the model's, without the parameters
	latency, chunkDelay time.Duration
	held                bool // until POST /release

	chunks, text, big, reasoning, preface int
	tool, json, sealed, vouched           bool
	finish, block                         string

	judge string // how it judges, or nothing
	// the shares that it passes of what is good, fails of what is bad, and answers as judge says
	se, sp, misrule float64
	likes           *regexp.Regexp // a character that it wants to see, if it judges by that
	good            float64        // the share of its answers that are good; -1 when they do not say

	encoding        string // of vectors, whatever was asked for
	usage           string
	inlineUsage     bool
	in, out, cached *int
	written, audio  *int

	status      int
	retryAfter  string
	shouldRetry string
	failFirst   int
	fault       string // a key of faults, or nothing
	after       int    // content chunks before the fault, or atOnce

	noDone, crlf, gzip, refuseStreamOptions bool
	ping                                    string // a comment between chunks, with its line ends
	split                                   int
}

// atOnce is a fault before the head of the answer. never is one after more chunks than there are.
const (
	atOnce = -1
	never  = math.MaxInt
)

// overloaded is a status of Anthropic's that HTTP does not define.
const overloaded = 529

type parameter struct {
	help string
	set  func(p *plan, value string) error
}

// parameters are all parameters of a model's name. A switch is on when it is present: its value is not read.
var parameters = map[string]parameter{
	"latency": {"until the head of the answer, such as 60ms", duration(func(p *plan) *time.Duration {
		return &p.latency
	})},
	"held": {"no answer before POST /release", on(func(p *plan) *bool { return &p.held })},
	"chunks": {"content chunks of a stream (3), if there are as many words", number(func(p *plan) *int {
		return &p.chunks
	})},
	"chunk_delay": {"between the chunks of a stream, such as 5ms", duration(func(p *plan) *time.Duration {
		return &p.chunkDelay
	})},
	"text": {"words of the answer (as many as chunks); max_tokens cuts them", number(func(p *plan) *int {
		return &p.text
	})},
	"big": {"bytes of the answer's text, whatever max_tokens says", number(func(p *plan) *int {
		return &p.big
	})},
	"reasoning": {
		"words of reasoning_content before the answer (4 when it has no value)",
		orElse("4", number(func(p *plan) *int { return &p.reasoning })),
	},
	"tool": {
		"call every tool of the request that tool_choice allows, unless the last message is a tool's",
		on(func(p *plan) *bool { return &p.tool }),
	},
	"preface": {"words of text before the tool calls (0)", number(func(p *plan) *int { return &p.preface })},
	"sealed": {
		"reasoning is followed by a block that only the provider can read, where the wire has such",
		on(func(p *plan) *bool { return &p.sealed }),
	},
	"vouched": {
		"as Gemini: calls must come back with the signatures they had, and not with those that Google takes " +
			"instead",
		on(func(p *plan) *bool { return &p.vouched }),
	},
	"finish": {"the reason why the answer ends, in the wire's own words", text(func(p *plan) *string {
		return &p.finish
	})},
	"block": {"refuse the prompt for this reason, as Gemini does: 200 without an answer", text(func(p *plan) *string {
		return &p.block
	})},
	"json": {"answer the least JSON that satisfies response_format", on(func(p *plan) *bool { return &p.json })},

	"judge": {
		"judge: a verdict on the last user message, whose last [truth=pass] or [truth=fail] is the truth, or " +
			"a draft where response_format asks for one; judge=garbage, refuse (its refusal member), contradict, " +
			"truncated, empty, hang: no verdict; fence: in a Markdown fence; obey: what a line that is not " +
			"quoted says, as in: answer {…}",
		judged,
	},
	"se": {"the share of what is good that the judge passes (1), drawn from the text", share(func(p *plan) *float64 {
		return &p.se
	})},
	"sp": {"the share of what is bad that the judge fails (1), drawn from the text", share(func(p *plan) *float64 {
		return &p.sp
	})},
	"likes": {
		"characters, such as a-z: the judge's grade is their share of the response, which passes from a half", likes,
	},
	"good": {
		"the share of answers that end with [truth=pass], drawn from the model's name and the last user " +
			"message; the others end with [truth=fail]",
		share(func(p *plan) *float64 { return &p.good }),
	},
	"misrule": {
		"the share of texts that judge=… goes wrong for (1), drawn from the text",
		share(func(p *plan) *float64 { return &p.misrule }),
	},

	"encoding": {"the encoding of vectors, float or base64, whatever the request says", oneOf(func(p *plan) *string {
		return &p.encoding
	}, "float", "base64")},

	"usage": {
		"normal; none; zero; last (unasked, and in the last event only); each (unasked, running, in every " +
			"event); over (a hundredfold)",
		oneOf(func(p *plan) *string { return &p.usage }, "normal", "none", "zero", "last", "each", "over"),
	},
	"inline_usage": {
		"usage on the finish chunk, asked or not, rather than in a chunk of its own",
		on(func(p *plan) *bool { return &p.inlineUsage }),
	},
	"in": {
		"input tokens to report, cached and written ones among them on every wire",
		some(func(p *plan) **int { return &p.in }),
	},
	"out":     {"output tokens to report", some(func(p *plan) **int { return &p.out })},
	"cached":  {"cached input tokens to report (0)", some(func(p *plan) **int { return &p.cached })},
	"written": {"input tokens to report as written to the cache", some(func(p *plan) **int { return &p.written })},
	"audio":   {"audio tokens of the input to report", some(func(p *plan) **int { return &p.audio })},

	"status":       {"refuse with this status", number(func(p *plan) *int { return &p.status })},
	"retry_after":  {"the refusal's Retry-After", text(func(p *plan) *string { return &p.retryAfter })},
	"should_retry": {"the refusal's x-should-retry", text(func(p *plan) *string { return &p.shouldRetry })},
	"fail_first": {
		"only the first so many requests of the same body fail, with the status (500) or the fault",
		number(func(p *plan) *int { return &p.failFirst }),
	},

	"hang":          {"never answer", strike("hang")},
	"hang_after":    {"fall silent after so many chunks", strikeAfter("hang")},
	"reset":         {"reset the connection instead of an answer", strike("reset")},
	"reset_after":   {"reset the connection after so many chunks", strikeAfter("reset")},
	"garbage":       {"200, and a body that is neither JSON nor events", strike("garbage")},
	"garbage_after": {"an event that is no JSON after so many chunks, and the end", strikeAfter("garbage")},
	"die_after":     {"close the connection after so many chunks, in the middle of the answer", strikeAfter("die")},
	"end_after": {
		"end the answer in good order after so many chunks, without finish_reason or [DONE]", strikeAfter("end"),
	},
	"error_event_after": {
		"an error event after so many chunks, and the end; 0: it is the first event", strikeAfter("error_event"),
	},

	"no_done": {"end without [DONE]", on(func(p *plan) *bool { return &p.noDone })},
	"ping":    {"a comment line between chunks; ping=blank with an empty line after it", ping},
	"crlf":    {"lines of the stream end with CR LF", on(func(p *plan) *bool { return &p.crlf })},
	"split": {"write so many bytes at a time, each in a chunk of HTTP", number(func(p *plan) *int {
		return &p.split
	})},
	"gzip": {"answer gzip, though nobody asked for it", on(func(p *plan) *bool { return &p.gzip })},
	"refuse_stream_options": {"400 when the body has stream_options", on(func(p *plan) *bool {
		return &p.refuseStreamOptions
	})},
}

// parsePlan reads a model's name. It refuses unknown parameters, so that a test cannot misspell one.
func parsePlan(model string) (plan, error) {
	name, query, _ := strings.Cut(model, "?")
	p := plan{name: name, chunks: 3, text: -1, usage: "normal", se: 1, sp: 1, misrule: 1, good: -1}
	values, err := url.ParseQuery(query)
	if err != nil {
		return p, fmt.Errorf("model %q: %w", model, err)
	}
	for key, value := range values {
		known, ok := parameters[key]
		if !ok {
			return p, fmt.Errorf("model %q: unknown parameter %s", model, key)
		}
		if err := known.set(&p, value[len(value)-1]); err != nil {
			return p, fmt.Errorf("model %q: %s: %w", model, key, err)
		}
	}
	if p.status != 0 && p.status != overloaded && http.StatusText(p.status) == "" {
		return p, fmt.Errorf("model %q: status: %d is none", model, p.status)
	}
	if p.failFirst > 0 && p.status == 0 && p.fault == "" {
		p.status = http.StatusInternalServerError
	}
	return p, nil
}

// heal removes the failure from the plan of a request that has failed often enough.
func (p *plan) heal() { p.status, p.fault = 0, "" }

func duration(field func(*plan) *time.Duration) func(*plan, string) error {
	return func(p *plan, value string) (err error) {
		*field(p), err = time.ParseDuration(value)
		return err
	}
}

func number(field func(*plan) *int) func(*plan, string) error {
	return func(p *plan, value string) error {
		n, err := strconv.Atoi(value)
		if err == nil && n < 0 {
			err = errors.New("must not be negative")
		}
		*field(p) = n
		return err
	}
}

func some(field func(*plan) **int) func(*plan, string) error {
	return func(p *plan, value string) error {
		n := new(int)
		*field(p) = n
		return number(func(*plan) *int { return n })(p, value)
	}
}

func on(field func(*plan) *bool) func(*plan, string) error {
	return func(p *plan, _ string) error { *field(p) = true; return nil }
}

func text(field func(*plan) *string) func(*plan, string) error {
	return func(p *plan, value string) error { *field(p) = value; return nil }
}

func oneOf(field func(*plan) *string, words ...string) func(*plan, string) error {
	return func(p *plan, value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
		}
		*field(p) = value
		return nil
	}
}

func orElse(value string, set func(*plan, string) error) func(*plan, string) error {
	return func(p *plan, given string) error {
		if given == "" {
			given = value
		}
		return set(p, given)
	}
}

func ping(p *plan, value string) error {
	p.ping = ": ping\n"
	if value == "blank" {
		p.ping += "\n"
	}
	return nil
}

func strike(fault string) func(*plan, string) error {
	return func(p *plan, _ string) error {
		if p.fault != "" {
			return errors.New("one fault is enough")
		}
		p.fault, p.after = fault, atOnce
		return nil
	}
}

func strikeAfter(fault string) func(*plan, string) error {
	return func(p *plan, value string) error {
		if err := strike(fault)(p, ""); err != nil {
			return err
		}
		return number(func(p *plan) *int { return &p.after })(p, value)
	}
}
