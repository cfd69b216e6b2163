// Package outcome lists how a request can end, for its charge. The names stand in usage rows, in the journal and in
// metrics.
package outcome

// An Outcome is how a request ended.
type Outcome string

// The outcomes. Each has a row in Table.
const (
	Finished Outcome = "finished" // the provider finished its answer
	Left     Outcome = "left"     // the caller disconnected after content was sent
	// the stream broke off after content was sent: the provider, a timeout or the server's stop
	Died    Outcome = "died"
	Nothing Outcome = "nothing" // the caller was sent no content
	// Abandoned is a whole answer whose caller had left when it came.
	Abandoned Outcome = "abandoned"
	Cached    Outcome = "cached" // the answer came from the gateway's cache
	Broken    Outcome = "broken" // the gateway dropped a request that had delivered content, by a panic
	Killed    Outcome = "killed" // the process died while the request ran
)

// A Basis is what a request is charged for.
type Basis int

// The bases.
const (
	None Basis = iota // nothing is charged
	// the usage that the provider reports, even if it is 0; without a report, counted input and output
	Answer
	// what the provider reported, at least the input and output that the caller was sent; at most the hold
	Delivered
	Excused  // as Answer, but nothing within the workspace's allowance, and at most the hold
	Recorded // what the journal last recorded as delivered
)

// A Row says what an outcome means for charge and log.
type Row struct {
	Outcome Outcome
	Basis   Basis
	Logged  bool // the exchange is logged, in workspaces that log
}

// Table has one row for every outcome.
var Table = [...]Row{
	{Finished, Answer, true},
	{Left, Delivered, false},
	{Died, Delivered, false},
	{Nothing, None, false},
	{Abandoned, Excused, false},
	{Cached, None, true},
	{Broken, Recorded, false},
	{Killed, Recorded, false},
}

// row returns the outcome's row. An unknown outcome charges nothing and is not logged.
func (o Outcome) row() Row {
	for i := range Table {
		if Table[i].Outcome == o {
			return Table[i]
		}
	}
	return Row{Outcome: o}
}

// Basis returns what a request with this outcome is charged for.
func (o Outcome) Basis() Basis { return o.row().Basis }

// Logged reports whether a request with this outcome is logged.
func (o Outcome) Logged() bool { return o.row().Logged }
