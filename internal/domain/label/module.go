package label

import "sovereign/internal/store/module"

// Module serves the labels of s.
func Module(s *Store) module.Module {
	h := &handler{s}
	return module.Module{Name: "labels", Routes: h.routes()}
}
