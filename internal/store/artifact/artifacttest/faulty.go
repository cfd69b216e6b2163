package artifacttest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Fault is what becomes of a request to S3.
type Fault string

// The faults of an S3, or of what stands between.
const (
	None       Fault = ""
	CutRequest Fault = "the connection is cut after some bytes of the request"
	CutAnswer  Fault = "the connection is cut after some bytes of the answer"
	Broken     Fault = "500"
	SlowDown   Fault = "503 SlowDown"
	WrongBytes Fault = "200 with other bytes of the same length"
	Lie        Fault = "200 with an error in the body, and nothing done"
	Shorter    Fault = "200 with fewer bytes, and that length"
)

// A Faulty stands before an S3 and spoils requests.
type Faulty struct {
	*httptest.Server
	Gone atomic.Bool // it closes every connection
	next http.Handler

	lock   sync.Mutex
	choose func(*http.Request) Fault
	seen   map[Fault]int
}

// NewFaulty serves an S3 until the test ends. At first it spoils nothing.
func NewFaulty(t *testing.T, next http.Handler) *Faulty {
	t.Helper()
	f := &Faulty{next: next, choose: func(*http.Request) Fault { return None }, seen: map[Fault]int{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// Spoil sets what becomes of requests from now on. Requests that try the store are left alone.
func (f *Faulty) Spoil(choose func(*http.Request) Fault) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.choose = choose
}

// Seen returns how many requests had a fault.
func (f *Faulty) Seen(fault Fault) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.seen[fault]
}

// ServeHTTP implements http.Handler.
func (f *Faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.Gone.Load() {
		panic(http.ErrAbortHandler)
	}
	f.lock.Lock()
	fault := None
	if !strings.Contains(r.URL.Path, "/probe/") {
		fault = f.choose(r)
	}
	f.seen[fault]++
	f.lock.Unlock()
	switch fault {
	case None:
		f.next.ServeHTTP(w, r)
	case CutRequest:
		_, _ = io.CopyN(io.Discard, r.Body, r.ContentLength/2)
		panic(http.ErrAbortHandler)
	case Broken:
		answer(w, http.StatusInternalServerError, "InternalError", "a test says so")
	case SlowDown:
		answer(w, http.StatusServiceUnavailable, "SlowDown", "a test says so")
	case Lie:
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, http.StatusOK, "InternalError", "a test says so")
	default:
		f.change(w, r, fault)
	}
}

// change passes a request on, and spoils the answer.
func (f *Faulty) change(w http.ResponseWriter, r *http.Request, fault Fault) {
	record := httptest.NewRecorder()
	f.next.ServeHTTP(record, r)
	body := record.Body.Bytes()
	for name, values := range record.Header() {
		w.Header()[name] = values
	}
	if fault == WrongBytes {
		for i := range body {
			body[i] ^= 1
		}
	}
	if fault == Shorter {
		body = body[:len(body)/2]
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(record.Code)
	if fault == CutAnswer {
		body = body[:len(body)/2]
	}
	_, _ = w.Write(body)
	if fault == CutAnswer {
		_ = http.NewResponseController(w).Flush() // an error is a cut too
		panic(http.ErrAbortHandler)
	}
}
