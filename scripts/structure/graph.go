package main

import (
	"math/rand/v2"
	"slices"
)

// A graph says which files use which others.
type graph struct {
	names []string
	index map[string]int
	edge  [][]bool // from, to
}

func newGraph(names []string) *graph {
	g := &graph{names: names, index: map[string]int{}, edge: make([][]bool, len(names))}
	for i, name := range names {
		g.index[name] = i
		g.edge[i] = make([]bool, len(names))
	}
	return g
}

func (g *graph) add(from, to string) {
	if from != to {
		g.edge[g.index[from]][g.index[to]] = true
	}
}

func (g *graph) size() (n int) {
	for _, row := range g.edge {
		for _, used := range row {
			if used {
				n++
			}
		}
	}
	return n
}

// restarts is how many random orders the search begins with. Packages are small: more do not find better ones.
const restarts = 200

// best finds an order of the files in which the fewest uses point upwards, and how many do. It moves one file at a time
// to where it helps most, from many random orders, always the same ones.
func (g *graph) best() (upwards int, order []int) {
	random := rand.New(rand.NewPCG(1, 2))
	upwards = g.size() + 1
	for range restarts {
		try := random.Perm(len(g.names))
		for g.improve(try) {
		}
		if n := g.upwards(try); n < upwards {
			upwards, order = n, try
		}
	}
	return upwards, order
}

// improve moves the first file that is better placed elsewhere, and reports whether there was one.
func (g *graph) improve(order []int) bool {
	before := g.upwards(order)
	for i := range order {
		for j := range order {
			moved := slices.Clone(order)
			file := moved[i]
			moved = slices.Insert(slices.Delete(moved, i, i+1), j, file)
			if g.upwards(moved) < before {
				copy(order, moved)
				return true
			}
		}
	}
	return false
}

// upwards counts the uses of a file that stands earlier in the order.
func (g *graph) upwards(order []int) (n int) {
	for i, from := range order {
		for _, to := range order[:i] {
			if g.edge[from][to] {
				n++
			}
		}
	}
	return n
}

// cyclic counts the uses between files that use each other, directly or through others.
func (g *graph) cyclic() (n int) {
	reaches := make([][]bool, len(g.edge))
	for i, row := range g.edge {
		reaches[i] = slices.Clone(row)
	}
	for via := range reaches {
		for from := range reaches {
			if !reaches[from][via] {
				continue
			}
			for to, reached := range reaches[via] {
				reaches[from][to] = reaches[from][to] || reached
			}
		}
	}
	for from, row := range g.edge {
		for to, used := range row {
			if used && reaches[to][from] {
				n++
			}
		}
	}
	return n
}
