//go:build race

package dataset

// watched is how many times fewer sets are made where every access is watched: what is made of them has no concurrency in it.
const watched = 5
