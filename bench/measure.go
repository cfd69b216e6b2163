package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A sample is one measurement of one target.
type sample struct {
	scenario, target string
	repeat           int
	requests, events int64
	took             time.Duration
	cpu              time.Duration // of the target, until all its work was done
	memory           int64
	p50, p99, begin  time.Duration // begin is the median of the first byte
	stolen, foreign  float64       // shares of the machine that were not ours
	started          time.Duration // of a server, how long its start took
}

// perRequest and perEvent are in microseconds.
func (s *sample) perRequest() float64 { return micros(s.cpu) / float64(s.requests) }
func (s *sample) perEvent() float64   { return micros(s.cpu) / float64(s.events) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// disturbed is the share of the machine above which a measurement is tried again.
const disturbed = 0.10

// steady measures until nobody disturbs it, three times at most, and keeps the quietest.
func (b *bench) steady(ctx context.Context, s *stage, t *target, sc *scenario, repeat int) (sample, error) {
	best, err := b.measure(ctx, s, t, sc, repeat)
	for try := 1; try < 3 && err == nil && best.stolen+best.foreign > disturbed && b.retries > 0; try++ {
		b.retries--
		b.say("           disturbed: %.0f%% stolen, %.0f%% foreign; once more", 100*best.stolen, 100*best.foreign)
		var next sample
		next, err = b.measure(ctx, s, t, sc, repeat)
		if err == nil && next.stolen+next.foreign < best.stolen+best.foreign {
			best = next
		}
	}
	return best, err
}

// measure sends one scenario's load to one target. Its CPU time counts until all that it has put off is done; what came
// out of it is counted against what went in.
func (b *bench) measure(ctx context.Context, s *stage, t *target, sc *scenario, repeat int) (sample, error) {
	result := sample{scenario: sc.name, target: t.name, repeat: repeat}
	asked, err := s.control(ctx, query("latency", sc.latency.String(), "interval", sc.interval.String(), "chunks", strconv.Itoa(streamChunks)))
	if err != nil {
		return result, err
	}
	l := &load{address: t.address, order: newOrder(sc.path, sc.body, t.people(sc.kind)), want: sc.want, conns: sc.conns, rate: sc.rate, memory: 32 << 10}
	crew, err := l.dial(ctx)
	if err != nil {
		return result, fmt.Errorf("%s: %w", t.name, err)
	}
	defer crew.close()
	books, err := t.open(ctx)
	if err != nil {
		return result, err
	}
	warm, err := b.phase(ctx, t, crew, books, b.warming(repeat))
	if err != nil {
		return result, err
	}
	profiled := b.profiling(ctx, t, sc, repeat)
	from, err := b.read(s, t)
	if err != nil {
		return result, err
	}
	f, err := b.phase(ctx, t, crew, books, b.duration)
	if err != nil {
		return result, err
	}
	to, err := b.read(s, t)
	if err != nil {
		return result, err
	}
	if err := profiled(); err != nil {
		return result, err
	}
	result.fill(f, from, to)
	result.memory = resident(t.pids())
	if t.server != nil {
		result.started = t.server.started
	}
	answered, err := s.control(ctx, "")
	if sent := warm.requests + f.requests; err == nil && answered-asked != sent {
		err = fmt.Errorf("%s: %d requests were answered, and the mock was asked %d times", t.name, sent, answered-asked)
	}
	return result, err
}

// warming is longer the first time, when a process has done nothing yet.
func (b *bench) warming(repeat int) time.Duration {
	if repeat == 0 {
		return 3 * b.warmup
	}
	return b.warmup
}

// A page is how many requests a target's books should have.
type page struct{ rows int64 }

func (t *target) open(ctx context.Context) (*page, error) {
	if t.server == nil {
		return nil, nil //nolint:nilnil // it keeps no books
	}
	rows, err := t.server.rows(ctx)
	return &page{rows}, err
}

// phase sends for a while, and waits until the books are complete.
func (b *bench) phase(ctx context.Context, t *target, c *crew, p *page, during time.Duration) (figure, error) {
	f, err := c.run(ctx, during)
	if err != nil || p == nil {
		if err != nil && t.process != nil {
			err = t.process.failure(err)
		}
		return f, err
	}
	p.rows += f.requests
	return f, t.server.settle(ctx, p.rows)
}

// A reading is what everybody had used until then.
type reading struct {
	target, ours time.Duration
	machine      moment
}

func (b *bench) read(s *stage, t *target) (reading, error) {
	target, err := spent(t.pids())
	ours, failed := spent([]int{os.Getpid(), s.mock.pid()})
	return reading{target, ours, machine()}, errors.Join(err, failed)
}

func (s *sample) fill(f figure, from, to reading) {
	s.requests, s.events, s.took = f.requests, f.events, f.took
	s.cpu = to.target - from.target
	s.p50, s.p99, s.begin = percentile(f.whole, 0.5), percentile(f.whole, 0.99), percentile(f.begin, 0.5)
	if all := float64(to.machine.all - from.machine.all); all > 0 {
		s.stolen = float64(to.machine.stolen-from.machine.stolen) / all
		s.foreign = max(0, float64(to.machine.busy-from.machine.busy-(to.target-from.target)-(to.ours-from.ours))/all)
	}
}

// profiling begins to read a server's profile, if that is wanted, and returns what waits for its end.
func (b *bench) profiling(ctx context.Context, t *target, sc *scenario, repeat int) func() error {
	if b.profile == "" || t.server == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	file := filepath.Join(b.profile, fmt.Sprintf("%s-%s-%d.pb.gz", sc.name, t.name, repeat))
	go func() { done <- t.server.profile(ctx, file, b.duration) }()
	return func() error { return <-done }
}
