package stat

// A Watch is the evidence of the checks of a run. Checks that somebody asks for are an e-process of their own: who
// chooses what is checked could otherwise choose good completions, and so delay a hold by the checks that nobody
// chooses. The mean of two e-processes is an e-process: a healthy run is ever held with probability at most AnchorErrs,
// whatever is checked, and however often.
type Watch struct {
	Regular   Anchor `json:"regular"`
	Requested Anchor `json:"requested"`
}

// ofRequested is the weight of the requested checks in the evidence.
const ofRequested = 0.25

// NewWatch returns the watch of a run whose judges may differ by gap. It has no data.
func NewWatch(gap float64) Watch { return Watch{Anchor{Gap: gap}, Anchor{Gap: gap}} }

// Check returns the watch after one more check, and whether what was checked passes: neither the check by itself nor
// all checks of its kind are evidence against the run. After many good checks the evidence of all is far below 1, and a
// bad check does not raise it above 1 at once.
func (w Watch) Check(requested bool, plus, minus, zero int64) (after Watch, passes bool) {
	kind := &w.Regular
	if requested {
		kind = &w.Requested
	}
	alone := Anchor{Gap: kind.Gap}.Check(plus, minus, zero)
	*kind = kind.Check(plus, minus, zero)
	return w, max(alone.Evidence(), kind.Evidence()) <= 1
}

// Evidence returns the e-value against a gap of at most Gap. It is 1 without data.
func (w Watch) Evidence() float64 {
	return (1-ofRequested)*w.Regular.Evidence() + ofRequested*w.Requested.Evidence()
}

// HoldsFrom is the evidence from which on a run is held.
const HoldsFrom = 1 / AnchorErrs

// Holds reports whether the run must be held.
func (w Watch) Holds() bool { return w.Evidence() >= HoldsFrom }
