package engines

import (
	"testing"

	"sovereign/internal/net/life"
)

// What an own model costs beside a model of the catalog: the choice of a replica.
func BenchmarkAcquire(b *testing.B) {
	g := NewRegistry().Open(GroupConfig{Name: "g"})
	g.Set([]Replica{{ID: "a", BaseURL: "http://127.0.0.1:1"}, {ID: "b", BaseURL: "http://127.0.0.1:1"}})
	b.ReportAllocs()
	for b.Loop() {
		l, err := g.Acquire(&life.Life{}, "m")
		if err != nil {
			b.Fatal(err)
		}
		l.Release(false)
	}
}

// What a caller that waits costs.
func BenchmarkWait(b *testing.B) {
	g := NewRegistry().Open(GroupConfig{Name: "g", Wait: 0})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Acquire(&life.Life{}, "m"); err == nil {
			b.Fatal("there is a replica")
		}
	}
}
