package db

import (
	"slices"
	"sync"
)

// listeners are the functions that commits call, by topic.
type listeners struct {
	mu      sync.Mutex
	byTopic map[string][]func()
}

// Listen registers f to be called after every commit of a transaction that signalled the topic. f must not block.
// Only commits of this process count: other servers on the same database are not heard.
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
