//go:build !race

package dataset

// raceFactor is 1 without the race detector.
const raceFactor = 1
