package label

import "sovereign/internal/store/module"

// Module serves the labels of s.
func Module(s *Store) module.Module {
	return module.Module{Name: "labels", Routes: NewHandler(s).Routes()}
}
