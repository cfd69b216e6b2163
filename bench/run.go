package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// A bench is a run of everything that was asked for.
type bench struct {
	*options
	retries int // that are left, so that a busy machine cannot keep us for ever
	samples []sample
}

var errMissed = errors.New("a mark was missed")

// run measures, prints, and fails when a mark was missed.
func run(ctx context.Context, o *options) error {
	b := &bench{options: o, retries: 50}
	if o.write != "" { // better now than when all is measured
		if _, err := splice(o.write, ""); err != nil {
			return err
		}
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o750); err != nil { //nolint:gosec // whoever runs this names it
			return err
		}
	}
	files := raiseFiles(4 * idleStreams)
	if most := int(files)/2 - 100; o.streams > most {
		o.say("only %d files may be open: %d idle streams instead of %d", files, most, o.streams)
		o.streams = most
	}
	for _, part := range []func(context.Context) error{b.loads, b.idles, b.growths, b.scales} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	text, met := b.report(ctx)
	fmt.Print(text)
	if o.write != "" {
		whole, err := splice(o.write, text)
		if err == nil {
			err = os.WriteFile(o.write, whole, 0o644) //nolint:gosec // a document
		}
		if err != nil {
			return err
		}
	}
	if !met {
		return errMissed
	}
	return nil
}

// staged runs with a mock and the targets of these names.
func (b *bench) staged(ctx context.Context, names []string, play func(*stage) error) error {
	s, err := newStage(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.add(ctx, b.options, names); err != nil {
		return err
	}
	if err := play(s); err != nil {
		return err
	}
	for _, t := range s.targets {
		if t.followed != nil && t.followed.Load() == 0 && slices.Contains(b.only, chatScenario().name) {
			return fmt.Errorf("%s: no row came to a live tail", t.name)
		}
		if t.server != nil {
			if err := t.server.prove(ctx); err != nil {
				return fmt.Errorf("the ledger of %s: %w", t.name, err)
			}
		}
	}
	return ctx.Err()
}

// loads measures the scenarios: each repeat has all targets side by side, and begins with another one.
func (b *bench) loads(ctx context.Context) error {
	wanted := slices.DeleteFunc(slices.Clone(scenarios), func(sc scenario) bool {
		return !slices.Contains(b.only, sc.name)
	})
	if len(wanted) == 0 {
		return nil
	}
	return b.staged(ctx, append([]string{nameDirect}, b.targets...), func(s *stage) error {
		for i := range wanted {
			sc := &wanted[i]
			targets := slices.DeleteFunc(slices.Clone(s.targets), func(t *target) bool { return !t.takes(sc) })
			for repeat := range b.times(sc) {
				if err := b.round(ctx, s, sc, targets, repeat); err != nil {
					return fmt.Errorf("%s: %w", sc.name, err)
				}
			}
		}
		return nil
	})
}

func (b *bench) times(sc *scenario) int {
	if sc.repeats > 0 {
		return min(b.repeats, sc.repeats)
	}
	return b.repeats
}

func (b *bench) add(s sample) {
	b.samples = append(b.samples, s)
	unit, cost := "request", s.perRequest()
	if s.events > 0 {
		unit, cost = "event", s.perEvent()
	}
	b.say("%-10s %d  %-18s %8.0f requests/s  %8.1f µs/%s  p50 %.2f ms  p99 %.2f ms  %4.0f MB  (%.0f%% stolen, %.0f%% foreign)", s.scenario, s.repeat+1, s.target,
		float64(s.requests)/s.took.Seconds(), cost, unit, millis(s.p50), millis(s.p99), float64(s.memory)/1e6, 100*s.stolen, 100*s.foreign)
}

// idles measures idle streams, in processes that have done nothing else. Each has a mock of its own: the ports of ten
// thousand connections are not free again for a minute.
func (b *bench) idles(ctx context.Context) error {
	if !slices.Contains(b.only, idle) {
		return nil
	}
	standing := slices.DeleteFunc(slices.Clone(b.targets), func(name string) bool {
		return !slices.Contains([]string{nameNginx, nameBare, nameOurs}, name)
	})
	for _, name := range standing {
		err := b.staged(ctx, []string{name}, func(s *stage) error {
			for _, t := range s.targets {
				one, err := b.idle(ctx, s, t, b.streams)
				if err != nil {
					return err
				}
				b.samples = append(b.samples, one)
				b.say("%-10s    %-18s %d streams  %.0f MB", idle, t.name, b.streams, float64(one.memory)/1e6)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", idle, err)
		}
	}
	return nil
}

// growths measures servers that know little and much, side by side.
func (b *bench) growths(ctx context.Context) error {
	if !slices.Contains(b.only, growth) || !slices.Contains(b.targets, nameOurs) {
		return nil
	}
	return b.staged(ctx, nil, func(s *stage) error {
		for _, n := range grown {
			server, err := startSovereign(ctx, s, b.options, "grown", n)
			if err != nil {
				return err
			}
			roaming := func(kind string) senders { // so that each of a million keys is used
				all := server.senders(kind)
				all.roams = true
				return all
			}
			s.targets = append(s.targets, &target{
				name: n.name, address: server.address, process: server.process, server: server, senders: roaming,
			})
			b.say(
				"%-10s    %-18s filled; ready after %.1f s with %.0f MB", growth, n.name, server.started.Seconds(),
				float64(resident(server.pids()))/1e6,
			)
		}
		sc := *chatScenario()
		sc.name, sc.repeats = growth, 5
		for repeat := range b.times(&sc) {
			if err := b.round(ctx, s, &sc, s.targets, repeat); err != nil {
				return fmt.Errorf("%s: %w", growth, err)
			}
		}
		return nil
	})
}
