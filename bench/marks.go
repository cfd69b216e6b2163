package main

import (
	"fmt"
	"strings"
	"time"
)

// A mark is a target value that a run must reach.
type mark struct {
	scenario string
	what     string
	most     float64
	decimals int
	value    func(all []sample) spread // one for each repeat: their median counts
}

// marks are checked in every run. A figure is compared with figures of the same repeat.
var marks = []mark{
	{"chat", "CPU per request, × bare", 0.75, 2, timesBare("chat")},
	{"chat", "CPU per request with every exchange logged, × bare", 1.50, 2, func(all []sample) spread {
		return against(all, "chat", nameLogging, nameBare, costs)
	}},
	{"chat", "CPU per logged request with ten live tails open, × without", 1.05, 2, func(all []sample) spread {
		return against(all, "chat", nameTails, nameLogging, costs)
	}},
	{"chat", "CPU per request with every limit set, × without", 1.05, 2, func(all []sample) spread {
		return against(all, "chat", nameLimits, nameOurs, costs)
	}},
	{"chat", "CPU per request through a gated split, × not gated", 1.03, 2, func(all []sample) spread {
		return against(all, "chat", nameGated, nameSplit, costs)
	}},
	{"prompt", "CPU per request, × bare", 0.75, 2, timesBare("prompt")},
	{"paced", "CPU per event, × bare", 1.00, 2, timesBare("paced")},
	{"burst", "CPU per event, × bare", 1.00, 2, timesBare("burst")},
	{"rate", "p50 beyond the provider's, ms", 0.3, 2, beyond(func(s *sample) time.Duration { return s.p50 })},
	{"rate", "p99 beyond the provider's, ms", 2, 2, beyond(func(s *sample) time.Duration { return s.p99 })},
	{idle, "MB for 10,000 streams", 1000, 0, func(all []sample) spread {
		return each(all, idle, nameOurs, func(s *sample) float64 {
			return float64(s.memory) / 1e6 / float64(s.events) * idleStreams
		})
	}},
	{growth, "CPU per request, a million keys × ten", 1.10, 2, func(all []sample) spread {
		return against(all, growth, "a million keys", tenKeys.name, costs)
	}},
	{scale, "CPU per request on PostgreSQL, × SQLite", 1.05, 2, timesEmbedded(nameOneNode)},
	{scale, "CPU per request of three nodes, × SQLite", 1.05, 2, timesEmbedded(nameThree)},
	{scale, "CPU per request of three nodes, × three servers on SQLite", 1.05, 2, func(all []sample) spread {
		return against(all, scale, nameThree, nameApart, costs)
	}},
}

func timesBare(scenario string) func([]sample) spread {
	return func(all []sample) spread { return against(all, scenario, nameOurs, nameBare, costs) }
}

func timesEmbedded(target string) func([]sample) spread {
	return func(all []sample) spread { return against(all, scale, target, nameEmbedded, costs) }
}

func beyond(f func(*sample) time.Duration) func([]sample) spread {
	return func(all []sample) spread {
		return against(all, "rate", nameOurs, nameDirect, func(mine, direct *sample) float64 {
			return millis(f(mine) - f(direct))
		})
	}
}

// writeMarks writes the marks that could be measured, and says whether all were met.
func writeMarks(out *strings.Builder, all []sample) (met bool) {
	met = true
	var lines strings.Builder
	for _, m := range marks {
		values := m.value(all)
		if len(values) == 0 {
			continue
		}
		verdict := "met"
		if values.median() > m.most {
			verdict, met = "**missed**", false
		}
		fmt.Fprintf(
			&lines, "| %s | %s | %.*f | %s | %s |\n", m.scenario, m.what, m.decimals, m.most, values.show(m.decimals),
			verdict,
		)
	}
	if lines.Len() > 0 {
		out.WriteString("### Marks\n\n| scenario | of `sovereign` | at most | measured | |\n|---|---|---:|---:|---|\n" + lines.String() + "\n")
	}
	return met
}
