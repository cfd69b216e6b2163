package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	database         time.Duration // of its PostgreSQL server meanwhile
	memory           int64
	p50, p99, begin  time.Duration // begin is the median of the first byte
	stolen, foreign  float64       // shares of the machine used by the hypervisor and by other processes
	started          time.Duration // of a server, how long its start took
}

// perRequest and perEvent are in microseconds.
func (s *sample) perRequest() float64 { return micros(s.cpu) / float64(s.requests) }
func (s *sample) perEvent() float64   { return micros(s.cpu) / float64(s.events) }

// perRequestOfDatabase is what the PostgreSQL server used.
func (s *sample) perRequestOfDatabase() float64 { return micros(s.database) / float64(s.requests) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// disturbed is the share of the machine above which a slice is thrown away and measured again.
const disturbed = 0.10

// slice is how long a target is under load before the next one. A machine may slow down for seconds; short slices
// spread that over all targets.
const slice = 500 * time.Millisecond

// A participant is a target with its load and its sums in a round.
type participant struct {
	*target
	callers *callers
	sum     sample
	all     figure
}

// round measures targets side by side. Each one gets the scenario's load for a slice, in alternating order, until each
// has had its measuring time.
func (b *bench) round(ctx context.Context, s *stage, sc *scenario, targets []*target, repeat int) error {
	if _, err := s.control(ctx, query(
		"latency", sc.latency.String(), "interval", sc.interval.String(), "chunks", strconv.Itoa(streamChunks),
	)); err != nil {
		return err
	}
	var participants []*participant
	defer func() {
		for _, one := range participants {
			one.callers.close()
		}
	}()
	for j := range targets {
		one, err := b.connect(ctx, targets[(repeat+j)%len(targets)], sc, repeat)
		if err != nil {
			return err
		}
		participants = append(participants, one)
	}
	turns := b.slices(sc)
	for turn := range turns {
		for _, one := range participants {
			if err := b.steady(ctx, s, one, b.duration/time.Duration(turns)); err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
		}
		if turn < turns-1 {
			slices.Reverse(participants)
		}
	}
	for _, one := range participants {
		b.add(one.total())
	}
	return nil
}

// slices returns the number of slices of each target. Scenarios with slow answers, and profiles, use one long slice.
func (b *bench) slices(sc *scenario) int {
	if sc.latency > 0 || sc.interval > 0 || b.profile != "" {
		return 1
	}
	return max(1, int(b.duration/slice))
}

// connect opens the connections of a target's load, and warms it up.
func (b *bench) connect(ctx context.Context, t *target, sc *scenario, repeat int) (*participant, error) {
	l := &load{
		addresses: t.addresses(), order: newOrder(sc.path, sc.body, t.senders(sc.kind)), want: sc.want, conns: sc.conns,
		rate: sc.rate, memory: 32 << 10,
	}
	callers, err := l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	one := &participant{target: t, callers: callers, sum: sample{scenario: sc.name, target: t.name, repeat: repeat}}
	if _, err := b.phase(ctx, one, b.warming(repeat)); err != nil {
		callers.close()
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return one, nil
}

// warming is longer the first time, when a process has done nothing yet.
func (b *bench) warming(repeat int) time.Duration {
	if repeat == 0 {
		return 3 * b.warmup
	}
	return b.warmup
}

// steady measures a slice, and repeats it while other processes disturb it and retries are left.
func (b *bench) steady(ctx context.Context, s *stage, one *participant, during time.Duration) error {
	for {
		f, spent, err := b.measure(ctx, s, one, during)
		if err != nil {
			return err
		}
		if spent.stolen+spent.foreign > disturbed && b.retries > 0 {
			b.retries--
			b.say("           disturbed: %.0f%% stolen, %.0f%% foreign; once more", 100*spent.stolen, 100*spent.foreign)
			continue
		}
		one.add(f, spent)
		return nil
	}
}

// rewarm is how long a target that has waited for its turn is under load before it counts.
const rewarm = 100 * time.Millisecond

// measure sends a slice of load to one target. CPU time is counted until all deferred work is done, and the number of
// answers is compared with the number of requests.
func (b *bench) measure(ctx context.Context, s *stage, one *participant, during time.Duration) (figure, sample, error) {
	var spent sample
	asked, err := s.control(ctx, "")
	if err != nil {
		return figure{}, spent, err
	}
	warm, err := b.phase(ctx, one, rewarm)
	if err != nil {
		return figure{}, spent, err
	}
	profiled := b.profiling(ctx, one)
	from, err := b.read(s, one.target)
	if err != nil {
		return figure{}, spent, err
	}
	f, err := b.phase(ctx, one, during)
	if err != nil {
		return figure{}, spent, err
	}
	to, err := b.read(s, one.target)
	if err != nil {
		return figure{}, spent, err
	}
	if err := profiled(); err != nil {
		return figure{}, spent, err
	}
	spent.fill(from, to)
	answered, err := s.control(ctx, "")
	if sent := warm.requests + f.requests; err == nil && answered-asked != sent {
		err = fmt.Errorf("%d requests were answered, and the mock was asked %d times", sent, answered-asked)
	}
	return f, spent, err
}

// add adds a slice to what a target was measured to do.
func (one *participant) add(f figure, spent sample) {
	sum := &one.sum
	sum.requests += f.requests
	sum.events += f.events
	sum.took += f.took
	sum.cpu += spent.cpu
	sum.database += spent.database
	sum.stolen, sum.foreign = max(sum.stolen, spent.stolen), max(sum.foreign, spent.foreign)
	one.all.whole = append(one.all.whole, f.whole...)
	one.all.begin = append(one.all.begin, f.begin...)
}

// total is all of its slices together.
func (one *participant) total() sample {
	sum := one.sum
	slices.Sort(one.all.whole)
	slices.Sort(one.all.begin)
	sum.p50, sum.p99, sum.begin = percentile(one.all.whole, 0.5), percentile(one.all.whole, 0.99), percentile(
		one.all.begin, 0.5,
	)
	sum.memory = resident(one.pids())
	if one.server != nil {
		sum.started = one.server.started
	}
	return sum
}

// rows returns how many requests the target has recorded, if it records any.
func (t *target) rows(ctx context.Context) (int64, error) {
	if t.server == nil {
		return 0, nil
	}
	return t.server.rows(ctx)
}

// settle waits until the target has recorded that many requests.
func (t *target) settle(ctx context.Context, rows int64) error {
	if t.server == nil {
		return nil
	}
	return t.server.settle(ctx, rows)
}

// phase sends load for a duration and waits until all requests are recorded. It counts the records before, since one
// server may serve several targets.
func (b *bench) phase(ctx context.Context, one *participant, during time.Duration) (figure, error) {
	before, err := one.rows(ctx)
	if err != nil {
		return figure{}, err
	}
	f, err := one.callers.run(ctx, during)
	if err != nil {
		if one.process != nil {
			err = one.process.failure(err)
		}
		return f, err
	}
	return f, one.settle(ctx, before+f.requests)
}

// A reading is the resource usage of all processes at one time.
type reading struct {
	target, database, ours time.Duration
	machine                moment
}

func (b *bench) read(s *stage, t *target) (reading, error) {
	target, err := spent(t.pids())
	ours, failed := spent([]int{os.Getpid(), s.mock.pid()})
	r := reading{target: target, ours: ours, machine: machine()}
	if t.database != nil {
		database, counting, fails := t.database.spent()
		r.database, r.ours, err = database, ours+counting, errors.Join(err, fails)
	}
	return r, errors.Join(err, failed)
}

func (s *sample) fill(from, to reading) {
	s.cpu, s.database = to.target-from.target, to.database-from.database
	if all := float64(to.machine.all - from.machine.all); all > 0 {
		s.stolen = float64(to.machine.stolen-from.machine.stolen) / all
		s.foreign = max(0, float64(to.machine.busy-from.machine.busy-s.cpu-s.database-(to.ours-from.ours))/all)
	}
}

// profiling begins to read a server's profile, if that is wanted, and returns what waits for its end.
func (b *bench) profiling(ctx context.Context, one *participant) func() error {
	if b.profile == "" || one.server == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	file := filepath.Join(b.profile, fmt.Sprintf("%s-%s-%d.pb.gz", one.sum.scenario, one.name, one.sum.repeat))
	go func() { done <- one.server.profile(ctx, file, b.duration) }()
	return func() error { return <-done }
}
