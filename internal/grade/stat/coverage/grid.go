package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A grid is a table of figures as it is published: what is in the page is all that the plot and the text know.
type grid struct {
	at      []string // the headings of what says where a row stands
	figures []string // the headings of its figures
	rows    []row
}

type row struct {
	at      []float64
	figures []float64
}

func (g *grid) add(at, figures []float64) {
	rounded := make([]float64, len(figures))
	for i, f := range figures {
		rounded[i] = down(f)
	}
	g.rows = append(g.rows, row{at, rounded})
}

// down is a share to four decimals, rounded down: no more is shown than there is.
func down(share float64) float64 { return math.Floor(share*1e4+1e-6) / 1e4 }

// up is the same, rounded up, of what errs.
func up(share float64) float64 { return math.Ceil(share*1e4-1e-6) / 1e4 }

// least is the lowest figure of the columns from one to before another.
func (g *grid) least(from, to int) float64 {
	lowest := math.Inf(1)
	for _, r := range g.rows {
		for _, f := range r.figures[from:to] {
			lowest = min(lowest, f)
		}
	}
	return lowest
}

// highest is the highest figure of a column.
func (g *grid) highest(column int) float64 {
	highest := math.Inf(-1)
	for _, r := range g.rows {
		highest = max(highest, r.figures[column])
	}
	return highest
}

func (g *grid) head() string {
	return "| " + strings.Join(append(append([]string{}, g.at...), g.figures...), " | ") + " |\n"
}

// String is g in Markdown.
func (g *grid) String() string {
	var out strings.Builder
	out.WriteString(g.head() + strings.Repeat("|---:", len(g.at)+len(g.figures)) + "|\n")
	for _, r := range g.rows {
		for _, a := range r.at {
			out.WriteString("| " + strconv.FormatFloat(a, 'f', -1, 64) + " ")
		}
		for _, f := range r.figures {
			fmt.Fprintf(&out, "| %.4f ", f)
		}
		out.WriteString("|\n")
	}
	return out.String()
}

// parse reads the rows of g from a page.
func (g *grid) parse(page string) error {
	_, rest, ok := strings.Cut(page, g.head())
	if !ok {
		return fmt.Errorf("there is no table %s", g.head())
	}
	g.rows = nil
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
