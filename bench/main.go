// Command bench measures what the gateway costs: CPU time for each request first, beside a proxy of the standard
// library and nginx, under the same load, in turn.
//
//	bench [run] [flags]          measures, prints tables, and fails when a mark is missed
//	bench peers [flags]          installs other gateways into .tools/peers and measures them beside ours
//	bench mock ADDRESS           runs the mock provider behind all targets
//	bench proxy ADDRESS TO       runs the reference proxy
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := play(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, errMissed):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

// play runs the subcommand that the command line names.
func play(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "mock":
		return newMock().listen(ctx, args[1])
	case len(args) == 3 && args[0] == "proxy":
		return serveProxy(ctx, args[1], args[2])
	}
	part, others := "run", []string{
		nameNginx, nameBare, nameOurs, nameStandard, nameLogging, nameTails, nameLimits, nameSplit, nameGated,
	}
	if len(args) > 0 && (args[0] == "run" || args[0] == "peers") {
		part, args = args[0], args[1:]
	}
	scenarios := names()
	if part == "peers" {
		scenarios, others = peerScenarios, append([]string{nameBare, nameOurs}, peerNames...)
	}
	o, err := parse(args, scenarios, others)
	if err != nil {
		return err
	}
	o.args = append([]string{part}, args...)
	if part == "peers" {
		if err := installPeers(ctx, o); err != nil {
			return err
		}
	}
	return run(ctx, o)
}

// options are the command-line flags.
type options struct {
	only, targets    []string
	repeats          int
	duration, warmup time.Duration
	streams          int
	transport        string
	binary, before   string
	write, profile   string
	args             []string
}

func (o *options) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

func parse(args, scenarios, others []string) (*options, error) {
	o := &options{}
	var only, targets string
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.StringVar(&only, "only", strings.Join(scenarios, ","), "scenarios")
	set.StringVar(&targets, "targets", strings.Join(others, ","), "what is measured, beside the mock itself")
	set.IntVar(&o.repeats, "repeats", 5, "how often everything is measured")
	set.DurationVar(&o.duration, "duration", 4*time.Second, "how long a measurement takes")
	set.DurationVar(
		&o.warmup, "warmup", 500*time.Millisecond, "how long the load runs before it; three times as long at first",
	)
	set.IntVar(&o.streams, "streams", idleStreams, "idle: how many streams are open at once")
	set.StringVar(&o.transport, "transport", "", "the transport of the gateway's provider; empty for its default")
	set.StringVar(&o.binary, "sovereign", "bin/sovereign", "the gateway's binary")
	set.StringVar(&o.before, "before", "", "another build of it to measure beside it, as the target "+nameBefore)
	set.StringVar(
		&o.write, "write", "", "write the tables into this file too, between "+resultsBegin+" and "+resultsEnd,
	)
	set.StringVar(
		&o.profile, "profile", "", "write the gateway's CPU profiles into this folder (which costs it a little)",
	)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	o.only, o.targets = strings.Split(only, ","), strings.Split(targets, ",")
	if o.before != "" {
		o.targets = append(o.targets, nameBefore)
	}
	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	if o.repeats < 1 || o.duration <= 0 || o.warmup <= 0 || o.streams < 1 || o.streams > idleStreams || set.NArg() > 0 {
		return nil, errors.New("a number is out of its range, or there is an argument too many")
	}
	return o, nil
}
