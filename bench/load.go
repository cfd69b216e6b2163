package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// A load is what is sent to one address, and what must come back.
type load struct {
	address string
	order   order
	want    expectation
	conns   int
	rate    float64 // requests a second; 0 for a new one as soon as the last is answered
	memory  int     // of a connection's reader
}

// A figure is what a load measured.
type figure struct {
	requests, events int64
	took             time.Duration
	whole            []time.Duration // until the end of each answer, sorted; of a rate from when it was due
	begin            []time.Duration // until the first byte of each body, sorted
}

// A caller is one connection, with one request on it at a time.
type caller struct {
	load    *load
	conn    net.Conn
	reader  *reader
	request []byte
	random  *rand.Rand
	key     int // that it used last; -1 for none

	events       int64
	whole, begin []time.Duration
}

// A crew is the callers of a load, whose connections stay between phases.
type crew struct {
	load    *load
	callers []*caller
}

// dial opens the load's connections.
func (l *load) dial(ctx context.Context) (*crew, error) {
	c := &crew{load: l}
	var dialer net.Dialer
	for i := range l.conns {
		conn, err := dialer.DialContext(ctx, "tcp", l.address)
		if err != nil {
			c.close()
			return nil, err
		}
		c.callers = append(c.callers, &caller{
			load: l, conn: conn, reader: newReader(bufio.NewReaderSize(conn, l.memory), l.want),
			request: l.order.copy(), random: rand.New(rand.NewPCG(uint64(i), 1)), key: -1,
		})
	}
	return c, nil
}

func (c *crew) close() {
	for _, caller := range c.callers {
		_ = caller.conn.Close()
	}
}

// patience is how long the last answers of a phase may take.
const patience = time.Minute

// run sends for a while and waits for the last answers. The first wrong answer ends it.
func (c *crew) run(ctx context.Context, during time.Duration) (figure, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, during+patience, errors.New("the answers did not come in time"))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(ctx, c.close)()

	next := c.turns(ctx, during)
	start := time.Now()
	var all sync.WaitGroup
	for _, caller := range c.callers {
		caller.whole, caller.begin, caller.events = caller.whole[:0], caller.begin[:0], 0
		all.Go(func() {
			for due, ok := next(start); ok; due, ok = next(start) {
				if err := caller.one(due); err != nil {
					fail(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return figure{}, fmt.Errorf("%s: %w", c.load.address, err)
	}
	return c.figure(time.Since(start)), nil
}

// turns tells a caller when its next request is due. A rate's requests come as those of many strangers do, the same in
// every run; one that nobody was free to send in time is late from when it was due, so that a stall hides nothing.
func (c *crew) turns(ctx context.Context, during time.Duration) func(start time.Time) (time.Time, bool) {
	if c.load.rate == 0 {
		return func(start time.Time) (time.Time, bool) {
			now := time.Now()
			return now, now.Sub(start) < during && ctx.Err() == nil
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	var at time.Duration
	return func(start time.Time) (time.Time, bool) {
		mu.Lock()
		at += time.Duration(random.ExpFloat64() * float64(time.Second) / c.load.rate)
		due := start.Add(at)
		mu.Unlock()
		if due.Sub(start) >= during {
			return due, false
		}
		time.Sleep(time.Until(due))
		return due, ctx.Err() == nil
	}
}

// one sends a request and reads its answer.
func (c *caller) one(due time.Time) error {
	c.key = c.load.order.address(c.request, c.random, c.key)
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	if err := c.reader.read(); err != nil {
		return err
	}
	c.whole = append(c.whole, time.Since(due))
	c.begin = append(c.begin, c.reader.first.Sub(due))
	c.events += int64(c.reader.events.count)
	return nil
}

func (c *crew) figure(took time.Duration) figure {
	f := figure{took: took}
	for _, caller := range c.callers {
		f.whole = append(f.whole, caller.whole...)
		f.begin = append(f.begin, caller.begin...)
		f.events += caller.events
	}
	f.requests = int64(len(f.whole))
	slices.Sort(f.whole)
	slices.Sort(f.begin)
	return f
}

// percentile is the value that a share of the sorted values does not exceed.
func percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(share*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(0, at), len(sorted)-1)]
}
