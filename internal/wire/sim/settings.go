package sim

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/live"
)

// The failures that are not a status.
const (
	hang       = "hang"
	garbage    = "garbage"
	die        = "die"
	errorEvent = "error_event"
)

// settings say how one request is answered.
type settings struct {
	live.Behaviour
	tokenCount int64 // tokens of a plain text; 0 lets the seed decide
	fail       string
	failAfter  int // negative if not set
	usage      usageOverride
}

// usageOverride replaces parts of the reported usage.
type usageOverride struct {
	mode                       string // normal, none or zero
	prompt, completion, cached int64  // negative: as counted
}

const (
	normal = "normal"
	none   = "none"
	zero   = "zero"
)

// setter decodes a member of sim, or returns what it must be.
type setter func(jsontext.Value) error

// readSettings returns the model's behaviour with the overrides of a request.
func readSettings(of *live.Behaviour, overrides jsontext.Value) (settings, error) {
	s := settings{failAfter: -1, usage: usageOverride{normal, -1, -1, -1}}
	if of != nil {
		s.Behaviour = *of
	}
	err := set("sim", overrides, map[string]setter{
		"seed":        number(&s.Seed, 0, math.MaxUint64),
		"latency_ms":  number(&s.LatencyMS, 0, 600_000),
		"chunk_ms":    number(&s.ChunkMS, 0, 600_000),
		"chunks":      number(&s.Chunks, 0, 100_000),
		"tokens":      number(&s.tokenCount, 1, 32_768),
		"quality":     number(&s.Quality, 0, 1),
		"sensitivity": number(&s.Sensitivity, 0, 1),
		"specificity": number(&s.Specificity, 0, 1),
		"error_rate":  number(&s.ErrorRate, 0, 1),
		"fail": oneOf(
			&s.fail, append(slices.Sorted(maps.Keys(statusErrors)), "", hang, garbage, die, errorEvent),
		),
		"fail_after": number(&s.failAfter, 0, 100_000),
		"usage":      s.usage.set,
	})
	return s, err
}

// set passes each member of an object to its setter. An absent object and null members change nothing.
func set(name string, object jsontext.Value, to map[string]setter) error {
	if object == nil || object.Kind() == 'n' {
		return nil
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(object, &members); err != nil {
		return invalid(name, "must be an object")
	}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		field := name + "." + member
		setter, ok := to[member]
		if !ok {
			return refuse("unknown_parameter", field, "Unknown parameter: '"+field+"'.")
		}
		if members[member].Kind() == 'n' {
			continue
		}
		err := setter(members[member])
		var within *apiError
		switch {
		case errors.As(err, &within):
			return err
		case err != nil:
			return invalid(field, "%v", err)
		}
	}
	return nil
}

func number[T int | int64 | uint64 | float64](into *T, low, high T) setter {
	return func(v jsontext.Value) error {
		var n T
		if err := json.Unmarshal(v, &n); err != nil || n < low || n > high {
			noun := "whole number"
			if _, fractional := any(n).(float64); fractional {
				noun = "number"
			}
			return fmt.Errorf("must be a %s from %v to %v", noun, low, high)
		}
		*into = n
		return nil
	}
}

func oneOf(into *string, allowed []string) setter {
	return func(v jsontext.Value) error {
		var s string
		if err := json.Unmarshal(v, &s); err != nil || !slices.Contains(allowed, s) {
			return fmt.Errorf("must be one of %q", allowed)
		}
		*into = s
		return nil
	}
}

// set reads a mode, or an object with numbers.
func (r *usageOverride) set(v jsontext.Value) error {
	if v.Kind() != '{' {
		return oneOf(&r.mode, []string{normal, none, zero})(v)
	}
	const most = 1_000_000_000
	return set("sim.usage", v, map[string]setter{
		"prompt_tokens":     number(&r.prompt, 0, most),
		"completion_tokens": number(&r.completion, 0, most),
		"cached_tokens":     number(&r.cached, 0, most),
	})
}

// headDelay returns the delay before the header of the answer.
func (s *settings) headDelay(streamed bool) time.Duration {
	if s.fail == hang && (!streamed || s.failAfter < 0) {
		return forever
	}
	return time.Duration(s.LatencyMS) * time.Millisecond
}
