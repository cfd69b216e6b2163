//go:build !amd64 || purego

package scan

import "testing"

func eachWidth(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	test(t)
}
