package calibration

// PendingBatch is how many rows are judged together.
const PendingBatch = pendingBatch

// Voids lists what voids a certificate.
var Voids = voids

// SamplePosition orders labels for blind samples.
var SamplePosition = samplePosition
