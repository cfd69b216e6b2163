//go:build !race

package wallet

// manyEntries is how many are posted at once.
const manyEntries = 20_000
