package stat

// Against returns the log e-value at one rate p of the base. The evidence of a stratum is its minimum over p.
func (s Stratum) Against(delta, p float64) float64 {
	value, _ := s.joint(delta, p)
	return value
}

// Ahead returns the log e-value that the canary's rate exceeds the base's by more than delta.
func (s Stratum) Ahead(delta float64) float64 { return s.ahead(delta) }

// Nodes returns the number of quadrature nodes for Beta(x+½, y+½).
func Nodes(x, y int64) int { return len(squares(x, y)) }

// Difference returns the canary's rate minus the base's, averaged over strata.
func Difference(s Strata) float64 { return s.difference() }
