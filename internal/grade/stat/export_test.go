package stat

// Against returns the log e-value at one rate p of the first arm. Ahead is its minimum over p.
func Against(a, b Arm, delta, p float64) float64 {
	value, _ := joint(a, b, delta, p)
	return value
}

// Nodes returns the number of quadrature nodes for Beta(x+½, y+½).
func Nodes(x, y int64) int { return len(squares(x, y)) }
