package calibration

import "sovereign/internal/domain/judging"

// FirstBatch is how many rows are judged together at first.
const FirstBatch = judging.DefaultConcurrency

// Voids lists what voids a certificate.
var Voids = voids

// SamplePosition orders labels for blind samples.
var SamplePosition = samplePosition
