package canary

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"sovereign/internal/domain/alias"
	"sovereign/internal/grade/trust"
)

var update = flag.Bool("update", false, "write the picture of docs/canaries.md")

const pictureFile = "../../../docs/canaries.svg"

// simulated returns the points of an epoch with these pass rates, up to its verdict. Every request is drawn, counted
// and weighed by the code that serves.
func simulated(seed uint64, baseRate, canaryRate float64) (points []Point, verdict Verdict) {
	random := rand.New(rand.NewPCG(seed, seed))
	f := &facts{
		settings: alias.GateSettings{GateMinSamples: 50, GateRollbackThreshold: 0.05, GateWindowHours: 1, GateMaxCost: 1}, splits: true,
		logging: true, certificate: &certificate{Trust: trust.Calibrated, Youden: 0.9}, started: 1, now: 1,
	}
	e := &epoch{StartedAt: 1, EvaluatedAt: 1}
	f.tally = &e.Tally
	for f.decided == "" {
		s := &sample{RequestID: strconv.FormatInt(e.Entered, 10), Stratum: 1, Canary: random.IntN(2) == 0, Result: rejected}
		rate := baseRate
		if s.Canary {
			rate = canaryRate
		}
		if random.Float64() < rate {
			s.Result = passed
		}
		e.Tally.add(s, 50, 0.05)
		e.Entered++
		last := int64(0)
		if len(points) > 0 {
			last = points[len(points)-1].Position
		}
		if v, _ := f.verdict(); v == Promote || v == RollBack {
			f.decided = v
		}
		if f.decided != "" || due(last, e.Entered) {
			points = append(points, *e.point(e.report(f)))
		}
	}
	return points, f.decided
}

// picture draws the evidence of runs beside each other.
func picture(t *testing.T) string {
	t.Helper()
	const width, height, low, high, most = 400.0, 260.0, -12.0, 6.0, 1600.0
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", 2*width+40, height+70)
	svg.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, run := range []struct {
		title        string
		seed         uint64
		base, canary float64
		want         Verdict
	}{
		{"Target 90 %, canary 92 %: promoted", 4, 0.90, 0.92, Promote},
		{"Target 90 %, canary 75 %: rolled back", 2, 0.90, 0.75, RollBack},
	} {
		points, verdict := simulated(run.seed, run.base, run.canary)
		if verdict != run.want || points[len(points)-1].Position > most {
			t.Fatalf("%s: %s after %d", run.title, verdict, points[len(points)-1].Position)
		}
		left := 40 + float64(i)*(width+20)
		x := func(n int64) float64 { return left + (width-40)*float64(n)/most }
		y := func(value float64) float64 { return 30 + height*(high-min(max(value, low), high))/(high-low) }
		fmt.Fprintf(&svg, `<text x="%.1f" y="20" font-weight="bold">%s</text>`+"\n", left, run.title)
		for _, value := range []float64{-12, -8, -4, 0, 4} {
			fmt.Fprintf(&svg, `<path d="M%.1f %.1fH%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%g</text>`+"\n",
				left, y(value), x(most), left-5, y(value)+4, value)
		}
		fmt.Fprintf(&svg, `<path d="M%.1f %.1fH%.1f" stroke="#555" stroke-dasharray="5 3"/><text x="%.1f" y="%.1f" fill="#555">needed: 3.22</text>`+"\n",
			left, y(points[0].needed()), x(most), x(most)-75, y(points[0].needed())-5)
		for n := int64(0); n <= int64(most); n += 400 {
			fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f" text-anchor="middle">%d</text>`+"\n", x(n), 30+height+16, n)
		}
		for _, line := range []struct {
			color string
			of    func(*Point) float64
		}{{"#1a7f37", func(p *Point) float64 { return p.Promote }}, {"#cf222e", func(p *Point) float64 { return p.RollBack }}} {
			var path strings.Builder
			fmt.Fprintf(&path, "M%.1f %.1f", x(0), y(0))
			for j := range points {
				fmt.Fprintf(&path, "L%.1f %.1f", x(points[j].Position), y(line.of(&points[j])))
			}
			fmt.Fprintf(&svg, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), line.color)
		}
	}
	fmt.Fprintf(&svg, `<text x="40" y="%g">drawn requests</text>`+"\n", height+64)
	fmt.Fprintf(&svg, `<path d="M200 %g h24" stroke="#1a7f37" stroke-width="2"/><text x="230" y="%g">evidence to promote</text>`+"\n", height+60, height+64)
	fmt.Fprintf(&svg, `<path d="M400 %g h24" stroke="#cf222e" stroke-width="2"/><text x="430" y="%g">evidence to roll back</text>`+"\n", height+60, height+64)
	svg.WriteString("</svg>\n")
	return svg.String()
}

// needed is what a decision needs.
func (*Point) needed() float64 { return rounded((&facts{}).gate().Weigh(new(tally).Evidence).Needed) }

// The picture of docs/canaries.md is what the gate computes: go test ./internal/domain/canary -run Picture -update
func TestThePictureOfTheDocumentationIsOfThisCode(t *testing.T) {
	drawn := picture(t)
	if *update {
		if err := os.WriteFile(pictureFile, []byte(drawn), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(pictureFile); err != nil || string(kept) != drawn {
		t.Errorf("docs/canaries.svg is of another code (%v): write it again with -update", err)
	}
}
