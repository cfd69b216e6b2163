//go:build !race

package socket

// watched says that the race detector does.
const watched = false
