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
func report(grids []*grid) (string, error) {
	places := map[string]int{"shares": shares, "edges": edges, "kappas": kappas, "few": few, "many": many, "looks": looks, "holds": holds}
	page, err := template.New(page).Option("missingkey=error").Funcs(template.FuncMap{
		"table": func(name string) string { return grids[places[name]].String() },
		"least": func(name string) string {
			return percent(grids[places[name]].least(0, len(grids[places[name]].figures)))
		},
		"ours":    func() string { return percent(grids[kappas].least(0, len(classes))) },
		"wald":    func() string { return percent(grids[kappas].least(len(classes), 2*len(classes))) },
		"highest": func(name string, column int) string { return percent(grids[places[name]].highest(column)) },
		"bad":     func(column int) string { return percent(worst(grids[looks], column)) },
		"picture": func() string { return picture },
		"repeats": func() int { return repeats },
		"request": func() int { return requests },
		"checks":  func() int { return checks },
		"sampled": func() int { return sampled },
		"minimum": func() int { return minimum },
		"seed":    func() int { return seed },
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
