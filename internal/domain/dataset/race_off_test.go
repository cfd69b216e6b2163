//go:build !race

package dataset

// watched is 1 where nobody watches.
const watched = 1
