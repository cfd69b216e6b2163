//go:build !amd64

package scan

func ascii(text []byte) int { return asciiByWords(text) }
