//go:build !race

package job

// finished is how many jobs have ended in the crowd.
const finished = 100_000
