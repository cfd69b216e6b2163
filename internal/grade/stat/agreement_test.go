package stat_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

func TestKappaMatchesPublishedValues(t *testing.T) {
	for _, c := range []struct {
		name      string
		table     [][]int64
		kappa, se float64
	}{
		{"SexualFun of R's vcd (Hout et al. 1987)", [][]int64{{7, 7, 2, 3}, {2, 8, 3, 7}, {1, 5, 4, 9}, {2, 8, 9, 14}}, .1293, .0686},
		{"the grant proposals of textbooks", [][]int64{{20, 5}, {10, 15}}, .4000, .1270},
		{"the example of SAS PROC FREQ, as kept in statsmodels' tests", [][]int64{{0, 4, 1}, {0, 8, 0}, {0, 1, 5}}, .4842, .1380},
		{"SAS usage note 22883: one column alone", [][]int64{{0, 3}, {0, 3}}, 0, 0},
	} {
		kappa, se, ok := stat.Kappa(c.table)
		if !ok {
			t.Errorf("%s is undefined", c.name)
		}
		near(t, c.name, kappa, c.kappa, 4)
		near(t, c.name+", standard error", se, c.se, 4)
	}
}

func TestKappaIsUndefinedWhereChanceAgreesAlways(t *testing.T) {
	for _, table := range []stat.Table{{}, {TP: 5}, {TN: 7}} {
		if _, _, ok := table.Kappa(); ok {
			t.Errorf("%+v has a kappa", table)
		}
		if _, ok := stat.KappaInterval(table, 0.95); ok {
			t.Errorf("%+v has an interval of kappa", table)
		}
	}
	if _, _, ok := stat.Kappa(nil); ok {
		t.Error("no table has a kappa")
	}
}

// tables draws a table of which kappa is defined.
func tables(t *rapid.T, most int64) stat.Table {
	cell := rapid.Int64Range(0, most)
	return rapid.Custom(func(t *rapid.T) stat.Table {
		return stat.Table{TP: cell.Draw(t, "tp"), FP: cell.Draw(t, "fp"), TN: cell.Draw(t, "tn"), FN: cell.Draw(t, "fn")}
	}).Filter(func(t stat.Table) bool { _, _, ok := t.Kappa(); return ok }).Draw(t, "table")
}

func TestTheIntervalOfKappaHoldsItMirrorsAndNarrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := tables(t, 60)
		kappa, _, _ := table.Kappa()
		i, ok := stat.KappaInterval(table, 0.95)
		if !ok || !i.Contains(kappa) || i[0] < -1 || i[1] > 1 || i.Width() <= 0 {
			t.Fatalf("kappa %v, interval %v, %v", kappa, i, ok)
		}
		for _, other := range []stat.Table{
			{TP: table.TN, FP: table.FN, TN: table.TP, FN: table.FP}, // pass and fail swapped
			{TP: table.TP, FP: table.FN, TN: table.TN, FN: table.FP}, // judge and people swapped
		} {
			o, _ := stat.KappaInterval(other, 0.95)
			if math.Abs(o[0]-i[0]) > 1e-7 || math.Abs(o[1]-i[1]) > 1e-7 {
				t.Fatalf("%v, swapped %v", i, o)
			}
		}
		if again, _ := stat.KappaInterval(table, 0.95); again != i {
			t.Fatalf("%v, again %v", i, again)
		}
		if wider, _ := stat.KappaInterval(table, 0.99); wider[0] > i[0] || wider[1] < i[1] {
			t.Fatalf("at 95 %% %v, at 99 %% %v", i, wider)
		}
		if table.N() >= 20 {
			ten := stat.Table{TP: 10 * table.TP, FP: 10 * table.FP, TN: 10 * table.TN, FN: 10 * table.FN}
			if narrower, _ := stat.KappaInterval(ten, 0.95); narrower.Width() >= i.Width() {
				t.Fatalf("%v, of ten times as many %v", i, narrower)
			}
		}
	})
}

func TestAPerfectTableIsNotCertain(t *testing.T) {
	for _, n := range []int64{1, 30, 50, 1000} {
		i, _ := stat.KappaInterval(stat.Table{TP: n, TN: n}, 0.95)
		if i[1] != 1 || i[0] >= 1-0.5/float64(n) {
			t.Errorf("%d and %d right of as many: %v", n, n, i)
		}
	}
}

// gamma draws from the gamma distribution of that shape (Marsaglia and Tsang 2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	for {
		x := r.NormFloat64()
		v := math.Pow(1+x/math.Sqrt(9*d), 3)
		if v > 0 && math.Log(r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// below returns the share of draws from a table's posterior below a bound. prior is the prior's count of disagreements.
func below(r *rand.Rand, table stat.Table, prior, bound float64) float64 {
	const draws = 60_000
	beta := func(a, b float64) float64 {
		x := gamma(r, a)
		return x / (x + gamma(r, b))
	}
	count := 0.0
	for range draws {
		agree := beta(float64(table.TP+table.TN)+1, float64(table.FP+table.FN)+prior)
		tp := agree * beta(float64(table.TP)+0.5, float64(table.TN)+0.5)
		fp := (1 - agree) * beta(float64(table.FP)+0.5, float64(table.FN)+0.5)
		tn, fn := agree-tp, 1-agree-fp
		if 2*(tp*tn-fp*fn)/((tp+fp)*(fp+tn)+(tp+fn)*(fn+tn)) < bound {
			count++
		}
	}
	return count / draws
}

// TestTheIntervalOfKappaMatchesTheSampledPosterior compares the quadrature with random draws from the posterior.
func TestTheIntervalOfKappaMatchesTheSampledPosterior(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for _, table := range []stat.Table{
		{TP: 45, FP: 5, TN: 45, FN: 5},
		{TP: 20, FP: 10, TN: 15, FN: 5},
		{TP: 100, TN: 3, FN: 1},
		{TP: 300, FP: 9, TN: 60, FN: 20},
		{TP: 5, FP: 30, TN: 5, FN: 30},
		{TP: 3, FP: 1, TN: 4, FN: 2},
	} {
		i, _ := stat.KappaInterval(table, 0.95)
		for _, c := range []struct{ bound, prior, want float64 }{{i[0], 1, 0.025}, {i[1], 0, 0.975}} {
			if got := below(r, table, c.prior, c.bound); math.Abs(got-c.want) > 0.0026 { // four standard errors
				t.Errorf("%+v: %.4f of the posterior lies below %v, not %v", table, got, c.bound, c.want)
			}
		}
	}
}

// Stored certificates must stay reproducible.
func TestTheIntervalOfKappaDoesNotChange(t *testing.T) {
	for table, want := range map[stat.Table]string{
		{TP: 50, TN: 50}:                   "0.92763 1.00000",
		{TP: 45, FP: 5, TN: 45, FN: 5}:     "0.64897 0.90108",
		{TP: 100, TN: 3, FN: 1}:            "0.37119 0.99622",
		{TP: 900, FP: 30, TN: 100, FN: 40}: "0.63233 0.76585",
	} {
		if i, _ := stat.KappaInterval(table, 0.95); fmt.Sprintf("%.5f %.5f", i[0], i[1]) != want {
			t.Errorf("%+v: %v, not %s", table, i, want)
		}
	}
}

// The cost of KappaInterval is proportional to the product of two node counts. They are bounded whatever the table.
func TestTheIntervalOfKappaNeedsFewNodes(t *testing.T) {
	for _, cells := range [][2]int64{{0, 0}, {0, 400}, {9000, 1000}, {300, 400}, {1_000_000, 1_000_000}, {1_000_000, 1}} {
		if n := stat.Nodes(cells[0], cells[1]); n == 0 || n > 24 {
			t.Errorf("%d nodes for %v", n, cells)
		}
	}
}

func TestATableSaysItsShares(t *testing.T) {
	table := stat.Table{TP: 40, FP: 3, TN: 57, FN: 10}
	if x, n := table.Sensitivity(); x != 40 || n != 50 {
		t.Errorf("sensitivity %d/%d", x, n)
	}
	if x, n := table.Specificity(); x != 57 || n != 60 {
		t.Errorf("specificity %d/%d", x, n)
	}
	b := table.Bounds(0.95)
	if b.Sensitivity != stat.ClopperPearson(40, 50, 0.95) || b.Specificity != stat.ClopperPearson(57, 60, 0.95) {
		t.Errorf("%+v", b)
	}
	near(t, "Youden", b.Youden(), b.Sensitivity[0]+b.Specificity[0]-1, 12)
}

func BenchmarkKappaInterval(b *testing.B) {
	for b.Loop() {
		stat.KappaInterval(stat.Table{TP: 95, FP: 6, TN: 94, FN: 5}, 0.95)
	}
}
