package db

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// listeners are the functions that commits call, by topic.
type listeners struct {
	mu      sync.Mutex
	byTopic map[string][]func()
}

// FeedTopic is the topic of the transactions of other servers that touched something. Those of this process are not
// signalled.
const FeedTopic = "feed"

// Listen registers f to be called after every commit of a transaction that signalled the topic. f must not block.
// Commits of other servers on the same database count while Hear runs. A call may be missed, and may come without a
// cause.
func (d *DB) Listen(topic string, f func()) {
	d.listeners.mu.Lock()
	defer d.listeners.mu.Unlock()
	if d.listeners.byTopic == nil {
		d.listeners.byTopic = map[string][]func(){}
	}
	d.listeners.byTopic[topic] = append(d.listeners.byTopic[topic], f)
}

// Signal calls the listeners of a topic after the transaction has committed, and not if it is rolled back.
func (t *Tx) Signal(topic string) {
	if !slices.Contains(t.signals, topic) {
		t.signals = append(t.signals, topic)
	}
}

func (l *listeners) call(topics []string) {
	for _, topic := range topics {
		l.mu.Lock()
		all := l.byTopic[topic]
		l.mu.Unlock()
		for _, f := range all {
			f()
		}
	}
}

// callAll calls every listener.
func (l *listeners) callAll() {
	l.mu.Lock()
	var topics []string
	for topic := range l.byTopic {
		topics = append(topics, topic)
	}
	l.mu.Unlock()
	l.call(topics)
}

// channel is our channel among those of a PostgreSQL database. Its payloads are a process and a topic.
const channel = "sovereign"

// notify tells the other servers of the topics when the transaction commits.
func (t *Tx) notify(ctx context.Context) error {
	if t.db.Engine != Postgres {
		return nil
	}
	for _, topic := range t.signals {
		if _, err := t.tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, channel, t.db.process+" "+topic); err != nil {
			return err
		}
	}
	return nil
}

const (
	hearPause   = 500 * time.Millisecond // before a new connection
	hearSilence = 5 * time.Second        // after which the connection is checked
)

// Hear calls listeners for the commits of other servers, until ctx ends. What they signalled while there was no
// connection is unknown, so every listener is called when there is one. On SQLite there are no others.
func (d *DB) Hear(ctx context.Context, log *slog.Logger) {
	if d.Engine != Postgres {
		return
	}
	failing := false
	for ctx.Err() == nil {
		err := d.hear(ctx, func() { failing = false })
		if ctx.Err() != nil {
			return
		}
		if !failing {
			log.Warn(
				"changes by other servers are noticed later: the connection that is notified of them failed", "err",
				err,
			)
			failing = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(hearPause):
		}
	}
}

func (d *DB) hear(ctx context.Context, connected func()) error {
	conn, err := pgx.ConnectConfig(ctx, d.config.Copy())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	connected()
	d.listeners.callAll()
	for {
		waiting, stop := context.WithTimeout(ctx, hearSilence)
		note, err := conn.WaitForNotification(waiting)
		silent := waiting.Err() != nil
		stop()
		switch {
		case err == nil:
			if process, topic, ok := strings.Cut(note.Payload, " "); ok && process != d.process {
				d.listeners.call([]string{topic})
			}
		case ctx.Err() != nil || !silent:
			return err
		default:
			check, stop := context.WithTimeout(ctx, hearSilence)
			err := conn.Ping(check)
			stop()
			if err != nil {
				return err
			}
		}
	}
}
