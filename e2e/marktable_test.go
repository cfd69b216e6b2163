package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A markTable holds measurements with the most that each may take.
type markTable struct{ rows []markRow }

type markRow struct {
	name string
	most float64 // of the 95th percentile, in milliseconds; 0 for no mark
	all  []float64
}

func newMarks() *markTable { return &markTable{} }

func (m *markTable) add(name string, most float64, all []float64) {
	slices.Sort(all)
	m.rows = append(m.rows, markRow{name, most, all})
}

func (r *markRow) at(p float64) float64 {
	if len(r.all) == 0 {
		return 0
	}
	return r.all[min(len(r.all)-1, int(float64(len(r.all))*p))]
}

// print writes the table, and fails the test when a mark is missed.
func (m *markTable) print(t *testing.T, title string) {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n| milliseconds | p50 | p95 | at most | |\n|---|---:|---:|---:|---|\n", title)
	for i := range m.rows {
		r, most, verdict := &m.rows[i], "", ""
		if r.most > 0 {
			most, verdict = fmt.Sprintf("%.0f", r.most), "met"
		}
		if r.most > 0 && (r.at(.95) > r.most || len(r.all) == 0) {
			verdict = "**missed**"
			t.Errorf("%s takes %.1f ms, more than %.0f", r.name, r.at(.95), r.most)
		}
		fmt.Fprintf(&out, "| %s | %.1f | %.1f | %s | %s |\n", r.name, r.at(.5), r.at(.95), most, verdict)
	}
	t.Log(out.String())
}
