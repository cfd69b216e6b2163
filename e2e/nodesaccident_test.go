package e2e

import (
	"math/rand/v2"
	"testing"
	"time"
)

// An accident happens to a node and is over when it returns; the node's server then runs again, or is about to serve.
type accident struct {
	name   string
	strike func(t *testing.T, n *node)
}

// The longest accident outlasts a lease of two seconds; half of them do not.
func aWhile() { time.Sleep(rand.N(4 * time.Second)) }

func aMoment() { time.Sleep(rand.N(300 * time.Millisecond)) }

var accidents = []accident{
	{"kill", func(t *testing.T, n *node) {
		n.kill()
		aMoment()
		n.restart(t)
	}},
	{"kill, and its last words arrive late", func(t *testing.T, n *node) {
		n.link.stall(requests, answers)
		aMoment()
		n.kill()
		n.start(t)
		aMoment()
		n.link.mend()
		n.ready(t)
	}},
	{"pause", func(_ *testing.T, n *node) {
		n.pause()
		aWhile()
		n.resume()
	}},
	{"cut", func(_ *testing.T, n *node) {
		n.link.cut()
		aWhile()
		n.link.mend()
	}},
	{"stall, then all arrives", func(_ *testing.T, n *node) {
		n.link.stall(requests, answers)
		aWhile()
		n.link.mend()
	}},
	{"stall, then all is lost", func(_ *testing.T, n *node) {
		n.link.stall(requests, answers)
		aWhile()
		n.link.lose()
		n.link.mend()
	}},
	{"answers are lost", func(_ *testing.T, n *node) {
		n.link.stall(answers)
		aWhile()
		n.link.lose()
		n.link.mend()
	}},
	{"clean restart", func(t *testing.T, n *node) {
		n.stop(t)
		n.restart(t)
	}},
}
