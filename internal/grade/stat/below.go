package stat

// Below is the evidence that an arm's rate is below p, as the logarithm of an e-value: wherever it is really p or above, that it ever
// reaches ln(1/alpha) has a probability of alpha at most, however often one looks (Ville 1939; Waudby-Smith and Ramdas 2023).
func (a Arm) Below(p float64) float64 {
	value, _ := a.against(p, &lower)
	return value
}
