package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A grid is a published table of figures. The plot and the text of the page are derived from the rounded figures.
type grid struct {
	at      []string // the headings of the columns that identify a row
	figures []string // the headings of the figures
	kind    kind
	rows    []row
}

// A kind is what the figures of a grid are.
type kind int

const (
	coverage kind = iota // shares that are rounded down, so that they are never overstated
	errors               // shares that are rounded up, so that they are never understated
	counts               // whole numbers
)

type row struct {
	at      []float64
	figures []float64
}

// rounded returns a figure as it is published.
func (k kind) rounded(figure float64) float64 {
	switch k {
	case errors:
		return up(figure)
	case counts:
		return math.Round(figure)
	default:
		return down(figure)
	}
}

func (k kind) text(figure float64) string {
	if k == counts {
		return fmt.Sprintf("%.0f", figure)
	}
	return fmt.Sprintf("%.4f", figure)
}

func (g *grid) add(at, figures []float64) {
	rounded := make([]float64, len(figures))
	for i, f := range figures {
		rounded[i] = g.kind.rounded(f)
	}
	g.rows = append(g.rows, row{at, rounded})
}

func down(share float64) float64 { return math.Floor(share*1e4+1e-6) / 1e4 }

func up(share float64) float64 { return math.Ceil(share*1e4-1e-6) / 1e4 }

// least returns the lowest figure of the columns [from, to).
func (g *grid) least(from, to int) float64 {
	lowest := math.Inf(1)
	for _, r := range g.rows {
		for _, f := range r.figures[from:to] {
			lowest = min(lowest, f)
		}
	}
	return lowest
}

// highest returns the highest figure of the columns [from, to).
func (g *grid) highest(from, to int) float64 {
	highest := math.Inf(-1)
	for _, r := range g.rows {
		for _, f := range r.figures[from:to] {
			highest = max(highest, f)
		}
	}
	return highest
}

func (g *grid) head() string {
	return "| " + strings.Join(append(append([]string{}, g.at...), g.figures...), " | ") + " |\n"
}

// String returns g as a Markdown table.
func (g *grid) String() string {
	var out strings.Builder
	out.WriteString(g.head() + strings.Repeat("|---:", len(g.at)+len(g.figures)) + "|\n")
	for _, r := range g.rows {
		for _, a := range r.at {
			out.WriteString("| " + strconv.FormatFloat(a, 'f', -1, 64) + " ")
		}
		for _, f := range r.figures {
			out.WriteString("| " + g.kind.text(f) + " ")
		}
		out.WriteString("|\n")
	}
	return out.String()
}

// parse reads the rows of g from a page. There are none if the page does not have the table.
func (g *grid) parse(page string) error {
	_, rest, ok := strings.Cut(page, g.head())
	g.rows = nil
	if !ok {
		return nil
	}
	for _, line := range strings.Split(rest, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var values []float64
		for cell := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
			value, err := strconv.ParseFloat(strings.TrimSpace(cell), 64)
			if err != nil {
				return fmt.Errorf("read row %s: %w", line, err)
			}
			values = append(values, value)
		}
		if len(values) != len(g.at)+len(g.figures) {
			return fmt.Errorf("row %s has %d cells", line, len(values))
		}
		g.rows = append(g.rows, row{values[:len(g.at)], values[len(g.at):]})
	}
	return nil
}
