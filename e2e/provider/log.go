package main

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"
)

const (
	maxRecords   = 10_000
	maxBodies    = 64 << 20
	maxRemember  = 100_000
	maxBodyBytes = 256 << 20
)

// A record is one request.
type record struct {
	At          time.Time   `json:"at"`
	Path        string      `json:"path"`
	Header      http.Header `json:"header"`
	Body        string      `json:"body"`
	Status      int         `json:"status"`       // 0 while there is no answer, and when there never was one
	Finished    bool        `json:"finished"`     // answered or refused as it should be, to the end
	CancelledAt *time.Time  `json:"cancelled_at"` // when the client went away before the end
	ChunksSent  int         `json:"chunks_sent"`  // content chunks of a stream
}

// A log keeps the last requests.
type log struct {
	mu      sync.Mutex
	records []*record
	bodies  int                       // bytes
	tries   map[[sha256.Size]byte]int // by request body
}

func newLog() *log { return &log{tries: map[[sha256.Size]byte]int{}} }

func (l *log) add(r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	l.bodies += len(r.Body)
	for len(l.records) > maxRecords || l.bodies > maxBodies {
		l.bodies -= len(l.records[0].Body)
		l.records[0] = nil
		l.records = l.records[1:]
	}
}

// change changes a record while others may read it.
func (l *log) change(r *record, how func(*record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how(r)
}

func (l *log) all() []record {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]record, len(l.records))
	for i, r := range l.records {
		out[i] = *r
	}
	return out
}

// try counts the requests that carry body, this one included.
func (l *log) try(body string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tries) >= maxRemember {
		clear(l.tries)
	}
	key := sha256.Sum256([]byte(body))
	l.tries[key]++
	return l.tries[key]
}

func (l *log) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records, l.bodies = nil, 0
	clear(l.tries)
}
