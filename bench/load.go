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

// A load describes the requests to one target and the expected answers.
type load struct {
	addresses []string // connections are spread over them
	order     order
	want      expectation
	conns     int
	rate      float64 // requests per second; 0 for closed-loop load: a new request after each answer
	memory    int     // the buffer size of a connection's reader
}

// A figure is the measured result of a load.
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

// callers are the connections of a load. They stay open between phases.
type callers struct {
	load    *load
	callers []*caller
}

// dial opens the load's connections.
func (l *load) dial(ctx context.Context) (*callers, error) {
	c := &callers{load: l}
	var dialer net.Dialer
	for i := range l.conns {
		conn, err := dialer.DialContext(ctx, "tcp", l.addresses[i%len(l.addresses)])
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

func (c *callers) close() {
	for _, caller := range c.callers {
		_ = caller.conn.Close()
	}
}

// drainTimeout bounds the wait for the last answers of a phase.
const drainTimeout = time.Minute

// run sends requests for a duration and waits for the last answers. It stops at the first wrong answer.
func (c *callers) run(ctx context.Context, during time.Duration) (figure, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, during+drainTimeout, errors.New("the answers did not come in time"))
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
		return figure{}, fmt.Errorf("%v: %w", c.load.addresses, err)
	}
	return c.figure(time.Since(start)), nil
}

// turns tells a caller when its next request is due. With a rate, arrivals are a Poisson process with a fixed seed. The
// latency of a request that was sent late counts from when it was due, which avoids coordinated omission.
func (c *callers) turns(ctx context.Context, during time.Duration) func(start time.Time) (time.Time, bool) {
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

func (c *callers) figure(took time.Duration) figure {
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

// percentile returns the value that a share of the sorted values does not exceed.
func percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	at := int(share*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(0, at), len(sorted)-1)]
}
