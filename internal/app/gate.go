package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/term"

	"sovereign/internal/store/job"
)

// The exit codes of sovereign gate, beside 0.
const (
	gateRefused = 1 // the gate refuses, or the run failed or was cancelled
	gateUnasked = 2 // the gate could not be asked
)

// An exitError ends the process with a code of its own.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

// exitCode returns the code for an error: 1, unless it has its own.
func exitCode(err error) int {
	var own *exitError
	if errors.As(err, &own) {
		return own.code
	}
	return 1
}

// gateCommand waits for an eval, and asks its deploy gate.
type gateCommand struct {
	EvalID string `arg:"" name:"eval-id" help:"The eval's id."`

	URL     string `name:"url" required:"" placeholder:"URL" help:"The server, such as https://models.example.com."`
	KeyFile string `placeholder:"FILE" help:"A file with the API key. Without it the key is that of SOVEREIGN_API_KEY in the environment."`

	Candidate       string   `placeholder:"MODEL" help:"The candidate, if the eval has several."`
	MinWinRate      *float64 `placeholder:"RATE" help:"Of a comparison: the win rate is at least this; a tie counts half."`
	MinPassRate     *float64 `placeholder:"RATE" help:"Of a criterion's run: the pass rate is at least this."`
	MaxRegression   *float64 `placeholder:"RATE" help:"Of a criterion's run: the pass rate is at most this much below the baseline's."`
	MaxCostRatio    *float64 `placeholder:"RATIO" help:"The total cost is at most this many times the baseline's."`
	MaxLatencyRatio *float64 `placeholder:"RATIO" help:"The median latency is at most this many times the baseline's."`
	RequireTrust    string   `placeholder:"TIER" help:"The judge is at least provisional, measured, calibrated or certified."`
	Confidence      *float64 `placeholder:"RATE" help:"With which each bound holds; 0.95 by default."`

	Timeout time.Duration `default:"1h" help:"How long to wait for the run."`
	asJSON  `embed:""`
}

// checks returns the checks that are asked for, as the server names them.
func (c *gateCommand) checks() url.Values {
	asked := url.Values{}
	for name, threshold := range map[string]*float64{
		"min_win_rate": c.MinWinRate, "min_pass_rate": c.MinPassRate, "max_regression": c.MaxRegression,
		"max_cost_ratio": c.MaxCostRatio, "max_latency_ratio": c.MaxLatencyRatio,
	} {
		if threshold != nil {
			asked.Set(name, strconv.FormatFloat(*threshold, 'g', -1, 64))
		}
	}
	if c.RequireTrust != "" {
		asked.Set("require_trust", c.RequireTrust)
	}
	return asked
}

// Run implements the command.
func (c *gateCommand) Run(t *terminal) error {
	key, err := c.key()
	if err != nil {
		return &exitError{gateUnasked, err}
	}
	client, err := newGateClient(c.URL, key)
	if err != nil {
		return &exitError{gateUnasked, err}
	}
	file, ok := t.err.(*os.File)
	return c.ask(client, t.out, progressOn(t.err, ok && term.IsTerminal(int(file.Fd()))))
}

// ask waits for the run and asks its gate. It returns nil if the gate passes.
func (c *gateCommand) ask(client *gateClient, out io.Writer, progress func(*evalState)) error {
	late := fmt.Errorf("the run has not ended after %s", c.Timeout)
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.Timeout, late)
	defer cancel()
	run, err := client.await(ctx, c.EvalID, progress)
	if err != nil {
		return &exitError{gateUnasked, err}
	}
	if run.Status != job.Done {
		if c.JSON {
			_, _ = fmt.Fprintln(out, string(run.body))
		}
		return &exitError{gateRefused, fmt.Errorf("the run is %s%s", run.Status, run.reason())}
	}
	verdict, err := client.gate(ctx, c.EvalID, c.Candidate, c.Confidence, c.checks())
	if err != nil {
		return &exitError{gateUnasked, err}
	}
	if c.JSON {
		_, err = fmt.Fprintln(out, string(verdict.body))
	} else {
		_, err = io.WriteString(out, verdict.table(c.EvalID))
	}
	switch {
	case err != nil:
		return &exitError{gateUnasked, err}
	case !verdict.Pass:
		return &exitError{gateRefused, errors.New("the gate refuses: " + printable(verdict.Error.Message))}
	}
	return nil
}

// key reads the API key. It is never an argument, since every process of the machine can read those.
func (c *gateCommand) key() (string, error) {
	if c.KeyFile != "" {
		text, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return "", err
		}
		return string(text), nil
	}
	if key := os.Getenv("SOVEREIGN_API_KEY"); key != "" {
		return key, nil
	}
	return "", errors.New("no API key: set SOVEREIGN_API_KEY, or name a file with --key-file")
}

// progressOn returns a function that shows the progress of a run: in place on a terminal, and as a line now and then in
// a log.
func progressOn(w io.Writer, terminal bool) func(*evalState) {
	if terminal {
		return func(run *evalState) {
			end := ""
			if run.Status.Ended() {
				end = "\n"
			}
			_, _ = fmt.Fprintf(w, "\r\x1b[K%s%s", run, end)
		}
	}
	var last time.Time
	var shown job.Status
	return func(run *evalState) {
		if run.Status == shown && time.Since(last) < time.Minute {
			return
		}
		shown, last = run.Status, time.Now()
		_, _ = fmt.Fprintln(w, run)
	}
}
