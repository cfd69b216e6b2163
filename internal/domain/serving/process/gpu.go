package process

import (
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var device = regexp.MustCompile(`^nvidia[0-9]+$`)

// GPUs returns the GPUs of this machine: their indexes, as CUDA_VISIBLE_DEVICES takes them.
func GPUs() []string {
	found, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is well-formed
	var all []string
	for _, at := range found {
		if name := filepath.Base(at); device.MatchString(name) {
			all = append(all, strings.TrimPrefix(name, "nvidia"))
		}
	}
	slices.SortFunc(all, func(x, y string) int { return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)) })
	return all
}
