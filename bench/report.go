package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// of are the samples of a target, by repeat.
func of(all []sample, scenario, target string) map[int]*sample {
	found := map[int]*sample{}
	for i := range all {
		if s := &all[i]; s.scenario == scenario && s.target == target {
			found[s.repeat] = s
		}
	}
	return found
}

// targetsOf are the targets of a scenario, in the order they came first.
func targetsOf(all []sample, scenario string) []string {
	var found []string
	for i := range all {
		if s := &all[i]; s.scenario == scenario && !slices.Contains(found, s.target) {
			found = append(found, s.target)
		}
	}
	return found
}

// A spread is a figure of each repeat.
type spread []float64

// each is what f says of a target's samples.
func each(all []sample, scenario, target string, f func(*sample) float64) spread {
	var values spread
	for _, s := range of(all, scenario, target) {
		if value := f(s); value != 0 { // the mock itself costs nothing
			values = append(values, value)
		}
	}
	return values
}

// against is what f says of a target's samples and those of another one, of the same repeat.
func against(all []sample, scenario, target, other string, f func(mine, others *sample) float64) spread {
	var values spread
	others := of(all, scenario, other)
	for repeat, mine := range of(all, scenario, target) {
		if o := others[repeat]; o != nil {
			values = append(values, f(mine, o))
		}
	}
	return values
}

func (s spread) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// show is the median, and the lowest and highest where there are several.
func (s spread) show(decimals int) string {
	switch len(s) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf("%.*f", decimals, s[0])
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", decimals, s.median(), decimals, slices.Min(s), decimals, slices.Max(s))
}

// cost is the CPU time of a sample for its unit: an event of streams, else a request.
func cost(s *sample) float64 {
	if s.events > 0 {
		return s.perEvent()
	}
	return s.perRequest()
}

func costs(mine, others *sample) float64 { return cost(mine) / cost(others) }

// A column is a heading and what stands below it for a target.
type column struct {
	name string
	show func(all []sample, scenario, target string) string
}

func plain(name string, decimals int, f func(*sample) float64) column {
	return column{name, func(all []sample, scenario, target string) string {
		return each(all, scenario, target, f).show(decimals)
	}}
}

func ratio(name, other string) column {
	return column{name, func(all []sample, scenario, target string) string {
		if target == nameDirect {
			return "–"
		}
		return against(all, scenario, target, other, costs).show(2)
	}}
}

func added(name string, f func(*sample) time.Duration) column {
	return column{name, func(all []sample, scenario, target string) string {
		return against(all, scenario, target, nameDirect, func(mine, direct *sample) float64 {
			return millis(f(mine) - f(direct))
		}).show(2)
	}}
}

// The columns of the tables.
var (
	speed  = plain("requests/s", 0, func(s *sample) float64 { return float64(s.requests) / s.took.Seconds() })
	cpu    = plain("CPU µs/request", 1, (*sample).perRequest)
	single = plain("CPU µs/event", 2, (*sample).perEvent)
	bare   = ratio("× bare", nameBare)
	p50    = plain("p50 ms", 2, func(s *sample) float64 { return millis(s.p50) })
	p99    = plain("p99 ms", 2, func(s *sample) float64 { return millis(s.p99) })
	begins = plain("first byte p50 ms", 2, func(s *sample) float64 { return millis(s.begin) })
	memory = plain("memory MB", 0, func(s *sample) float64 { return float64(s.memory) / 1e6 })

	answers = []column{speed, cpu, bare, p50, p99, memory}
	streams = []column{speed, single, bare, begins, memory}

	columns = map[string][]column{
		"paced": streams, "burst": streams,
		"rate": {
			p50, p99, added("added p50 ms", func(s *sample) time.Duration { return s.p50 }),
			added("added p99 ms", func(s *sample) time.Duration { return s.p99 }), cpu, bare, memory,
		},
		idle: {plain("streams", 0, func(s *sample) float64 { return float64(s.events) }), memory, plain("KB/stream", 1, func(s *sample) float64 { return float64(s.memory) / 1e3 / float64(s.events) })},
		growth: {
			speed, cpu, ratio("× ten keys", tenKeys.name), p50, p99, memory,
			plain("ready after s", 1, func(s *sample) float64 { return s.started.Seconds() }),
		},
		scale: {
			speed, plain("CPU s/million requests", 1, (*sample).perRequest), ratio("× SQLite", nameEmbedded),
			plain("PostgreSQL's CPU s/million", 1, (*sample).perRequestOfDatabase),
			plain("together", 1, func(s *sample) float64 { return s.perRequest() + s.perRequestOfDatabase() }), p50,
			p99, memory,
		},
	}
	explained = map[string]string{
		idle: "Streams that are open at once, have had their first words and say nothing more; fresh processes.",
		scale: "`chat` on one server with SQLite, on three that know nothing of each other, and on servers that share a PostgreSQL " +
			"database. The connections are spread to the servers evenly. " +
			"All of it runs on the same cores, so more nodes give no more requests per second here: what counts is CPU time. " +
			"The nodes' own, and that of their PostgreSQL server, are apart; one second per million requests is a microsecond per request.",
		growth: "`chat` on servers that know much: each request comes from a key, and names a model, drawn at random of all there are.",
	}
)

// writeTable writes the figures of a scenario, or nothing when it was not measured.
func writeTable(out *strings.Builder, all []sample, scenario, says string) {
	targets := targetsOf(all, scenario)
	if len(targets) == 0 {
		return
	}
	wanted, ok := columns[scenario]
	if !ok {
		wanted = answers
	}
	fmt.Fprintf(out, "### %s\n\n%s\n\n|", scenario, says)
	for _, c := range append([]column{{name: "target"}}, wanted...) {
		fmt.Fprintf(out, " %s |", c.name)
	}
	out.WriteString("\n|---|" + strings.Repeat("---:|", len(wanted)) + "\n")
	slices.SortStableFunc(targets, func(a, b string) int { return slices.Index(rows, a) - slices.Index(rows, b) })
	for _, t := range targets {
		fmt.Fprintf(out, "| %s |", t)
		for _, c := range wanted {
			fmt.Fprintf(out, " %s |", c.show(all, scenario, t))
		}
		out.WriteString("\n")
	}
	out.WriteString("\n")
}

// rows is the order of targets in tables.
var rows = []string{
	nameDirect, nameNginx, nameBare, nameBefore, nameOurs, nameStandard, nameLogging, nameLimits,
	nameSplit, nameGated, nameLiteLLM, namePortkey, grown[0].name, grown[1].name, grown[2].name, grown[3].name,
	nameEmbedded, nameApart, nameOneNode, nameTwoNodes, nameThree,
}

// report is everything that was measured, as Markdown, and whether all marks were met.
func (b *bench) report(ctx context.Context) (text string, met bool) {
	var out strings.Builder
	out.WriteString(b.place(ctx))
	met = writeMarks(&out, b.samples)
	says := maps.Clone(explained)
	for i := range scenarios {
		says[scenarios[i].name] = scenarios[i].says
	}
	for _, name := range names() {
		writeTable(&out, b.samples, name, says[name])
	}
	return out.String(), met
}

const everything = "The gateway has everything on: the key is checked, the model is an alias, money is held, every request is in the journal and in the " +
	"ledger, and metrics and logs are kept. Its CPU time counts until the last row of usage is written, and of `sovereign-logging` the last logged exchange " +
	"too; rows, requests and what the mock was asked are the same number, and the ledger was proven afterwards. Figures are medians, with the lowest and the highest; `× bare` compares within a repeat.\n\n"

const besides = nameLiteLLM + " is " + litellmVersion + " of PyPI, with one worker and one key; " + namePortkey +
	" is " + portkeyVersion +
	" of npm, which checks no key. Neither keeps books here. Where one has no row, it failed at the scenario.\n\n"

// place says what was measured where.
func (b *bench) place(ctx context.Context) string {
	var stolen, foreign float64
	for i := range b.samples {
		stolen, foreign = max(stolen, b.samples[i].stolen), max(foreign, b.samples[i].foreign)
	}
	text := everything
	if slices.ContainsFunc(b.targets, func(name string) bool { return slices.Contains(peerNames, name) }) {
		text += besides
	}
	return fmt.Sprintf("`bench %s` on %s, %d cores, %s, %s; commit %s; %s. %d repeats of %s; "+
		"at most %.0f%% of the machine stolen and %.0f%% used by others during a measurement.\n\n%s",
		strings.Join(b.args, " "), processor(), runtime.NumCPU(), kernel(), runtime.Version(), commit(ctx),
		time.Now().UTC().Format(time.DateOnly),
		b.repeats, b.duration, 100*stolen, 100*foreign, text)
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Between these two lines of a document stand results.
const resultsBegin, resultsEnd = "<!-- results -->", "<!-- end of results -->"

var errNoPlace = errors.New("there is no place for results: " + resultsBegin + " and " + resultsEnd)

// splice is the document with the results put in place of those that stand there.
func splice(file, results string) ([]byte, error) {
	text, err := os.ReadFile(file) //nolint:gosec // whoever runs this names it
	if err != nil {
		return nil, err
	}
	before, rest, ok := strings.Cut(string(text), resultsBegin)
	_, after, ends := strings.Cut(rest, resultsEnd)
	if !ok || !ends {
		return nil, fmt.Errorf("%s: %w", file, errNoPlace)
	}
	return []byte(before + resultsBegin + "\n\n" + strings.TrimSpace(results) + "\n\n" + resultsEnd + after), nil
}
