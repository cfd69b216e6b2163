package main

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed statistics.md.tmpl
var pageText string

// report returns the page.
func report(all grids) (string, error) {
	column := func(name string, from, to int) (int, int) {
		if to < 0 {
			to = len(all[name].figures)
		}
		return from, to
	}
	page, err := template.New(page).Option("missingkey=error").Funcs(template.FuncMap{
		"table": func(name string) (string, error) {
			if all[name] == nil {
				return "", fmt.Errorf("there is no table %s", name)
			}
			return all[name].String(), nil
		},
		// The least or highest figure of a table's columns, from and up to; -1 stands for the last.
		"least":   func(name string, from, to int) string { return percent(all[name].least(column(name, from, to))) },
		"highest": func(name string, from, to int) string { return percent(all[name].highest(column(name, from, to))) },
		"bad":     func(column int) string { return percent(worst(all[looks], column)) },
		"value":   func(name string) any { return values[name] },
	}).Parse(pageText)
	if err != nil {
		return "", fmt.Errorf("parse the page: %w", err)
	}
	var out strings.Builder
	if err := page.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("write the page: %w", err)
	}
	return out.String(), nil
}

// values are the sizes of the simulations, for the page.
var values = map[string]any{
	"picture": picture, "seed": seed,
	"repeats": repeats, "requests": requests, "minimum": minimum,
	"gap needed":  percent(1 - 2*gapMisses),
	"anchor runs": thousands(anchorRuns), "delay runs": delayRuns, "checks": anchorChecks, "sampled": sampled,
	"canary runs": thousands(canaryRuns), "equal runs": thousands(equalRuns), "labels": labels,
	"mean runs": thousands(meanRuns),
	"eval runs": thousands(evalRuns), "exact runs": thousands(exactRuns),
	"power labels": powerLabels, "power requests": thousands(powerRequests), "power runs": powerRuns,
}

// thousands writes a number with a comma before its last three digits.
func thousands(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// worst is the highest figure of a column among canaries that are worse by r or more.
func worst(g *grid, column int) float64 {
	highest := 0.0
	for _, r := range g.rows {
		if base, canary, margin := r.at[0], r.at[1], r.at[2]; base-canary >= margin-1e-9 {
			highest = max(highest, r.figures[column])
		}
	}
	return highest
}
