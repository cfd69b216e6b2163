//go:build !race

package wallet

// manyEntries is the number of entries posted at once, several batches.
const manyEntries = 5_000
