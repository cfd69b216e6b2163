package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sovereign/internal/grade/stat"
)

const docs = "../../../../docs"

// published returns the figures of the page.
func published(t *testing.T) (grids []*grid, text string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(docs, page))
	if err != nil {
		t.Fatal(err)
	}
	grids = blank()
	for _, g := range grids {
		if err := g.parse(string(content)); err != nil {
			t.Fatal(err)
		}
	}
	return grids, string(content)
}

// The text of the page and the plot are derived from the figures in the page.
func TestThePageAndThePlotMatchThePublishedFigures(t *testing.T) {
	grids, text := published(t)
	again, err := report(grids)
	if err != nil {
		t.Fatal(err)
	}
	if again != text {
		t.Errorf("%s does not match its own figures: run make statistics", page)
	}
	drawn, err := os.ReadFile(filepath.Join(docs, picture))
	if err != nil {
		t.Fatal(err)
	}
	if plot(grids) != string(drawn) {
		t.Errorf("%s does not show the figures of %s: run make statistics", picture, page)
	}
	if rows := []int{len(grids[shares].rows), len(grids[edges].rows), len(grids[kappas].rows), len(grids[few].rows), len(grids[many].rows), len(grids[looks].rows), len(grids[holds].rows)}; !slices.Equal(rows,
		[]int{len(sizes), len(narrow), len(judges) * len(passing), len(judges) * len(classes), len(judges) * len(classes), len(canaries), len(runs)}) {
		t.Errorf("rows are missing: %v", rows)
	}
}

// same fails when the published row at at does not have these figures.
func same(t *testing.T, g *grid, at, figures []float64) {
	t.Helper()
	want := &grid{}
	want.add(at, figures)
	for _, r := range g.rows {
		if slices.Equal(r.at, at) {
			for i, f := range want.rows[0].figures {
				if math.Abs(r.figures[i]-f) > 1.5e-4 { // other processors may round differently
					t.Errorf("at %v, %s is published as %v and is %v: run make statistics", at, g.figures[i], r.figures[i], f)
				}
			}
			return
		}
	}
	t.Errorf("there is no row at %v", at)
}

func TestPublishedFiguresMatchThisCode(t *testing.T) {
	grids, _ := published(t)
	for _, n := range []int64{20, 50} {
		same(t, grids[shares], []float64{float64(n)}, shareRow(n))
	}
	for _, e := range narrow {
		same(t, grids[edges], []float64{float64(e.n), e.p}, edgeRow(e.n, e.p))
	}
	for _, judge := range [][2]float64{{.9, .99}, {.99, .99}} {
		k := memory{}.kappa(judge, .5, 30)
		at, _ := kappaRow(judge, .5, []kept{k})
		for _, r := range grids[kappas].rows {
			if slices.Equal(r.at, at) && (math.Abs(r.figures[0]-k.ours) > 1.5e-4 || math.Abs(r.figures[len(classes)]-k.wald) > 1.5e-4) {
				t.Errorf("kappa at %v is published as covered %v and %v, and is %+v: run make statistics", at, r.figures[0], r.figures[len(classes)], k)
			}
		}
	}
	same(t, grids[few], []float64{.9, .99, 30}, correctedRow([2]float64{.9, .99}, 30, 200))
	same(t, grids[holds], []float64{runs[0].gap, runs[0].plus, runs[0].minus}, []float64{runs[0].held()})
}

func TestPublishedFiguresKeepEveryPromise(t *testing.T) {
	grids, _ := published(t)
	if least := grids[shares].least(0, len(proportions)+1); least < confidence {
		t.Errorf("certified intervals cover %v", least)
	}
	if bad := worst(grids[looks], 0); bad > alpha {
		t.Errorf("of bad canaries %v are promoted", bad)
	}
	if held := grids[holds].highest(0); held > alpha {
		t.Errorf("of healthy runs %v are held", held)
	}
}

func TestOutcomesAreABinomialDistribution(t *testing.T) {
	for _, n := range []int64{1, 30, 1000} {
		for _, p := range []float64{.001, .5, .995} {
			sum, mean := 0.0, 0.0
			for _, o := range outcomes(n, p) {
				sum, mean = sum+o.probability, mean+o.probability*float64(o.x)
			}
			if sum < 1-2*rare || sum > 1+1e-9 || math.Abs(mean-float64(n)*p) > 1e-3 {
				t.Errorf("%d at %v: sum %v, mean %v", n, p, sum, mean)
			}
		}
	}
}

func TestTrueKappaMatchesAVeryLargeTable(t *testing.T) {
	table := stat.Table{TP: 720_000, FN: 80_000, TN: 190_000, FP: 10_000}
	kappa, _, _ := table.Kappa()
	if got := trueKappa([2]float64{.9, .95}, .8); math.Abs(got-kappa) > 1e-12 {
		t.Errorf("%v, not %v", got, kappa)
	}
}
