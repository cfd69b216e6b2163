//go:build race

package dataset

// raceFactor divides the number of random sets under the race detector: the code that they test has no concurrency.
const raceFactor = 5
