package monitor

// ReadRates computes rates with the criterion's last certificate.
var ReadRates = readRates
