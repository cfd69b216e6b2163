//go:build race

package job

// finished is fewer where every access is watched.
const finished = 20_000
