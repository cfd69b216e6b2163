//go:build linux && race

package socket

// raceEnabled reports whether the race detector is built in.
const raceEnabled = true
