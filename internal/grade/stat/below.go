package stat

// Below returns the logarithm of the e-value that an arm's rate is below p. When the true rate is p or above, the value
// ever reaches ln(1/alpha) with probability at most alpha, however often it is tested (Ville 1939; Waudby-Smith and
// Ramdas 2023).
func (a Arm) Below(p float64) float64 {
	value, _ := a.against(p, &lower)
	return value
}
