package main

import (
	"fmt"
	"strings"
)

// The dimensions of the plot in pixels, and the range of coverage that it shows.
const (
	panelWidth, panelHeight = 190, 300
	left, top, between      = 60, 64, 16
	lowest, topmost         = 0.40, 1.0
)

const style = `<style>
  text { font: 12px system-ui, sans-serif; fill: #333 }
  .title { font-weight: 600 }
  .note { fill: #666 }
  .grid { stroke: #ddd }
  .level { stroke: #c2410c; stroke-width: 1.5; stroke-dasharray: 5 3 }
  .levelText { fill: #c2410c }
  .dot { fill: #2563eb; fill-opacity: .35 }
  .least { fill: none; stroke: #2563eb; stroke-width: 1.5 }
  .ground { fill: #fff }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd }
    .note { fill: #aaa }
    .grid { stroke: #3a3f47 }
    .level { stroke: #fb923c }
    .levelText { fill: #fb923c }
    .dot { fill: #7cb0ff }
    .least { stroke: #7cb0ff }
    .ground { fill: #0d1117 }
  }
</style>
`

// A panel shows the coverage of one interval, by the number of labels per class.
type panel struct {
	title, note string
	values      [][]float64 // by class
}

func panels(grids grids) []panel {
	out := []panel{
		{"se, sp", "Clopper–Pearson", nil},
		{"kappa", "Dirichlet posterior", nil},
		{"kappa", "from its standard error", nil},
		{"corrected rate", "of 200 verdicts", nil},
		{"corrected rate", "of 1,000 verdicts", nil},
	}
	for c, class := range classes {
		var certified, ours, wald []float64
		for _, r := range grids[shares].rows {
			if r.at[0] == float64(class) {
				certified = append(certified, r.figures...)
			}
		}
		for _, r := range grids[kappas].rows {
			ours, wald = append(ours, r.figures[c]), append(wald, r.figures[c+len(classes)])
		}
		corrected := func(g *grid) (values []float64) {
			for _, r := range g.rows {
				if r.at[2] == float64(class) {
					values = append(values, r.figures...)
				}
			}
			return values
		}
		for i, values := range [][]float64{certified, ours, wald, corrected(grids[few]), corrected(grids[many])} {
			out[i].values = append(out[i].values, values)
		}
	}
	return out
}

// plot returns the plot as SVG.
func plot(grids grids) string {
	var out strings.Builder
	all := panels(grids)
	width := left + len(all)*(panelWidth+between) + 8
	height := top + panelHeight + 56
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="Coverage of 95 %% intervals by labels per class">`+"\n", width, height)
	out.WriteString(style)
	fmt.Fprintf(&out, `<rect class="ground" width="%d" height="%d"/>`+"\n", width, height)
	fmt.Fprintf(&out, `<text class="title" x="%d" y="20">How often a 95 %% interval holds the truth</text>`+"\n", left)
	fmt.Fprintf(
		&out, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">coverage</text>`+"\n",
		top+panelHeight/2,
	)
	fmt.Fprintf(
		&out, `<text x="%d" y="%d" text-anchor="middle">labels of the smaller class</text>`+"\n", (left+width)/2,
		height-10,
	)
	for i := range all {
		all[i].draw(&out, left+i*(panelWidth+between), i == 0)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// height returns the vertical position of a coverage.
func heightOf(coverage float64) float64 {
	return top + panelHeight*(topmost-max(coverage, lowest))/(topmost-lowest)
}

func (p *panel) draw(out *strings.Builder, x int, first bool) {
	fmt.Fprintf(
		out, `<g><text class="title" x="%d" y="%d">%s</text><text class="note" x="%d" y="%d">%s</text>`+"\n", x, top-24,
		p.title, x, top-10, p.note,
	)
	for _, tick := range []float64{.4, .5, .6, .7, .8, .9, 1} {
		fmt.Fprintf(
			out, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", x, x+panelWidth, heightOf(tick),
			heightOf(tick),
		)
		if first {
			fmt.Fprintf(
				out, `<text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`+"\n", x-8, heightOf(tick)+4, 100*tick,
			)
		}
	}
	fmt.Fprintf(
		out, `<line class="level" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", x, x+panelWidth, heightOf(confidence),
		heightOf(confidence),
	)
	if first {
		fmt.Fprintf(
			out, `<text class="levelText" x="%d" y="%.1f" text-anchor="end">95 %%</text>`+"\n", x-8,
			heightOf(confidence)+4,
		)
	}
	var points []string
	for c, values := range p.values {
		center := float64(x) + panelWidth*(float64(c)+0.5)/float64(len(p.values))
		low := topmost
		for i, v := range values {
			aside := 24 * ((float64(i)+0.5)/float64(len(values)) - 0.5)
			fmt.Fprintf(out, `<circle class="dot" cx="%.1f" cy="%.1f" r="2.5"/>`, center+aside, heightOf(v))
			low = min(low, v)
		}
		points = append(points, fmt.Sprintf("%.1f,%.1f", center, heightOf(low)))
		fmt.Fprintf(
			out, "\n"+`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", center, top+panelHeight+18,
			classes[c],
		)
	}
	fmt.Fprintf(out, `<polyline class="least" points="%s"/></g>`+"\n", strings.Join(points, " "))
}
