//go:build race

package wallet

// manyEntries is the number of entries posted at once: the embedded database is thirty times slower under the race
// detector.
const manyEntries = 1100
