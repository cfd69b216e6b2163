package evalendpoint

import "sovereign/internal/store/module"

// Module serves the endpoints of s.
func Module(s *Store) module.Module {
	return module.Module{Name: "eval endpoints", Routes: (&handler{s}).routes()}
}
