package outcome

// A Sample is what a request says about its arm of a split, when the gate of the split has drawn it.
type Sample string

// The samples.
//
// The arm's model failed if a provider's fault kept its answer from the caller, whatever came in its place. A request
// that failed for another reason says nothing about the model, and nor does one whose caller left.
const (
	Answered Sample = "answered" // the arm's model answered, and the caller has the whole answer: a verdict is due
	Failed   Sample = "error"    // the arm's model failed: an error, a timeout, a broken stream, or a fallback answered
	Departed Sample = "left"     // the caller left before it had the whole answer
	Excluded Sample = "excluded" // the gateway or the provider refused the request itself, or the server stopped
)

// Samples are all samples.
var Samples = [...]Sample{Answered, Failed, Departed, Excluded}
