package process

import "path/filepath"

// Cgroups returns the cgroups of a folder's engines.
func Cgroups(folder string) ([]string, error) {
	parent, err := cgroupParent()
	if err != nil {
		return nil, nil //nolint:nilerr // there are none
	}
	return filepath.Glob(filepath.Join(parent, cgroupPrefix(folder)+"*"))
}
