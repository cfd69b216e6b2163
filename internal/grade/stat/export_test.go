package stat

// Against is the evidence at one rate of the first arm: never below Ahead, which is the least over all rates.
func Against(a, b Arm, delta, p float64) float64 {
	value, _ := joint(a, b, delta, p)
	return value
}

// Nodes returns the number of quadrature nodes for Beta(x+½, y+½).
func Nodes(x, y int64) int { return len(squares(x, y)) }
