// Package journal is a write-ahead journal of charges: an append-only file on the local disk that records what every
// request cost before its caller sees the last byte. It sits between memory, which a crash loses, and the ledger, a
// database that may be slow or unreachable.
//
// It makes two separate promises. Process-durable: when Append has returned, the entry survives kill -9, because the
// kernel has it. Machine-durable: a power loss costs at most what was appended since the last Sync, which a timer
// calls.
//
// A segment begins with a copy of the entry of every request that was open when the segment was started. One segment,
// read from its start, is therefore enough to know the state of every request that it mentions.
package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"sovereign/internal/base/id"
)

// A Position is a point in the journal between two entries.
type Position struct {
	Segment int64
	Offset  int64
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Offset < q.Offset
}

// segmentSize is the default Limit.
const segmentSize = 64 << 20

// A Journal has many concurrent writers and one reader, the poster. Make it with Open, recover what it holds, then
// call Begin.
type Journal struct {
	ID       string
	Limit    int64 // bytes of a segment; beyond it the next one is started
	Torn     int64 // bytes at the end of the last segment that are no complete entry: a write that never returned
	disk     Disk
	appended chan struct{}

	mu      sync.Mutex
	pending []byte // encoded entries for the next leader to write
	queue   []*waiter
	entries []Entry // the entries in pending, for the table of open requests
	writing bool

	// The fields below are changed by the leader only. Others read them under mu.
	file   File
	buffer []byte // the last batch, reused
	spare  struct {
		entries []Entry
		queue   []*waiter
	}
	end           Position
	synced        Position
	open          map[string]Entry
	failure       error // of the last write or sync; nil when it succeeded
	failedSegment int64 // a segment that could not be started and not be removed; 0 when there is none
	mustTruncate  bool  // the last write failed, and its partial bytes could not be truncated
	syncFailed    bool  // the last sync failed: the kernel may have dropped the dirty pages
}

type waiter struct {
	done chan bool // true: the receiver becomes the leader; false: its entries are written, or failed with err
	err  error
}

// waiters pools waiters. When Append returns, nothing else refers to its waiter.
var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan bool, 1)} }}

// Open finds the journal on a disk, or creates one. It cannot be written until Begin.
func Open(disk Disk) (*Journal, error) {
	j := &Journal{disk: disk, open: map[string]Entry{}, Limit: segmentSize, appended: make(chan struct{}, 1)}
	file, err := disk.Open("id")
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	defer func() { _ = file.Close() }()
	text := make([]byte, 64)
	n, err := file.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the journal's id: %w", err)
	}
	j.ID = strings.TrimSpace(string(text[:n]))
	segments, err := j.Segments()
	if err != nil {
		return nil, err
	}
	if id.Has("jrn", j.ID) {
		return j, j.findEnd(segments)
	}
	if len(segments) > 0 {
		return nil, errors.New("the journal's file id is damaged: the table journal_cursors has the id that must stand in it")
	}
	j.ID = id.New("jrn")
	if _, err := file.WriteAt([]byte(j.ID+"\n"), 0); err != nil {
		return nil, fmt.Errorf("write the journal's id: %w", err)
	}
	return j, errors.Join(file.Truncate(int64(len(j.ID)+1)), file.Sync(), disk.Sync())
}

func segmentName(n int64) string { return fmt.Sprintf("%012d.journal", n) }

// Segments lists the numbers of the existing segments, in order.
func (j *Journal) Segments() ([]int64, error) {
	all, err := Numbered(j.disk, segmentName)
	if err != nil {
		return nil, fmt.Errorf("list the journal: %w", err)
	}
	return all, nil
}

// findEnd reads the last segment up to the first incomplete entry, and syncs what a killed process left unsynced.
func (j *Journal) findEnd(segments []int64) error {
	if len(segments) == 0 {
		return nil
	}
	last := segments[len(segments)-1]
	file, err := j.disk.Open(segmentName(last))
	if err != nil {
		return fmt.Errorf("open segment %d: %w", last, err)
	}
	defer func() { _ = file.Close() }()
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("open segment %d: %w", last, err)
	}
	j.end = Position{last, 0}
	for range math.MaxInt {
		_, next, err := scan(file, j.end, size, readBatch)
		if errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return err
		}
		if next == j.end {
			break
		}
		j.end = next
	}
	j.Torn = size - j.end.Offset
	j.synced = j.end
	return file.Sync()
}

// Begin starts the segment after the last one. From then on the journal can be written.
func (j *Journal) Begin() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.startSegment(j.end.Segment + 1)
}

func (j *Journal) startSegment(segment int64) error {
	file, err := j.disk.Open(segmentName(segment))
	if err != nil {
		return fmt.Errorf("begin segment %d: %w", segment, err)
	}
	var head []byte
	for _, e := range sortedByRequest(j.open) {
		head = appendEntry(head, &e)
	}
	if err := errors.Join(file.Truncate(0), write(file, head, 0), file.Sync(), j.disk.Sync()); err != nil {
		j.failedSegment = segment
		return errors.Join(fmt.Errorf("begin segment %d: %w", segment, err), file.Close(), j.removeFailedSegment())
	}
	if j.file != nil {
		_ = j.file.Close() // synced before
	}
	j.file, j.end = file, Position{segment, int64(len(head))}
	j.synced = j.end
	return nil
}

// removeFailedSegment removes a segment that could not be started. Nothing is written before that has succeeded: the
// next start would take the entries at the head of that segment for requests that are still open.
func (j *Journal) removeFailedSegment() error {
	if j.failedSegment == 0 {
		return nil
	}
	if err := j.disk.Remove(segmentName(j.failedSegment)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := j.disk.Sync(); err != nil {
		return err
	}
	j.failedSegment = 0
	return nil
}

func write(file File, data []byte, at int64) error {
	if len(data) == 0 {
		return nil
	}
	n, err := file.WriteAt(data, at)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return err
}

// Append writes entries, all or none, and returns when the kernel has them. It is a group commit: a caller that finds
// no write in progress becomes the leader and writes all pending entries. Entries that arrive during its write are
// written by the next leader. That takes one write per batch, and no goroutine has to be woken.
func (j *Journal) Append(entries ...Entry) error {
	w, _ := waiters.Get().(*waiter)
	defer waiters.Put(w)
	j.mu.Lock()
	before := len(j.pending)
	for i := range entries {
		start := len(j.pending)
		if j.pending = appendEntry(j.pending, &entries[i]); len(j.pending)-start > headerSize+maxPayload {
			j.pending = j.pending[:before]
			j.mu.Unlock()
			return errTooLong
		}
	}
	j.entries = append(j.entries, entries...)
	j.queue = append(j.queue, w)
	if j.writing {
		j.mu.Unlock()
		if lead := <-w.done; !lead {
			return w.err
		}
		j.mu.Lock()
	}
	j.writing = true
	j.writePending()
	if len(j.queue) > 0 {
		j.queue[0].done <- true // the longest waiter leads next, so that no caller writes for others for ever
	} else {
		j.writing = false
	}
	j.mu.Unlock()
	return w.err
}

// errTooLong refuses an entry that a reader would take for damage.
var errTooLong = fmt.Errorf("an entry is longer than %d bytes", maxPayload)

var errClosed = errors.New("the journal is closed")

// writePending writes the pending entries, the leader's own among them. mu is held when it is called and when it
// returns.
func (j *Journal) writePending() {
	batch, entries, queue := j.pending, j.entries, j.queue
	j.pending, j.entries, j.queue = j.buffer[:0], j.spare.entries[:0], j.spare.queue[:0]
	err := errClosed
	if j.file != nil {
		file, at := j.file, j.end.Offset
		j.mu.Unlock()
		err = j.writeBatch(file, batch, at)
		j.mu.Lock()
	}
	j.finishWrite(int64(len(batch)), entries, err)
	j.buffer = batch
	for i, w := range queue {
		w.err = err
		if i > 0 {
			w.done <- false
		}
	}
	clear(queue)
	clear(entries)
	j.spare.entries, j.spare.queue = entries, queue
}

// writeBatch writes a batch, or leaves nothing of it. What a failed write left behind must be truncated before the
// next write, or a reader could take it for entries.
func (j *Journal) writeBatch(file File, batch []byte, at int64) error {
	if err := j.removeFailedSegment(); err != nil {
		return err
	}
	if j.mustTruncate {
		if err := file.Truncate(at); err != nil {
			return err
		}
		j.mustTruncate = false
	}
	err := write(file, batch, at)
	if err != nil {
		cut := file.Truncate(at)
		j.mustTruncate = cut != nil
		err = errors.Join(err, cut)
	}
	return err
}

func (j *Journal) finishWrite(size int64, entries []Entry, err error) {
	select {
	case j.appended <- struct{}{}:
	default: // a signal is already pending
	}
	if err != nil {
		j.failure = err
		return
	}
	j.end.Offset += size
	for i := range entries {
		track(j.open, &entries[i])
	}
	if j.end.Offset >= j.Limit {
		err = j.rotate() // the batch is written all the same; the next write retries
	}
	if err != nil || !j.syncFailed { // a successful write does not make unsynced entries safe
		j.failure = err
	}
}

// track updates the table of open requests.
func track(open map[string]Entry, e *Entry) {
	switch e.Kind {
	case Opened:
		open[e.Request] = *e
	case Progressed:
		if was, ok := open[e.Request]; ok {
			open[e.Request] = was.withProgress(e)
		}
	case Settled:
		delete(open, e.Request)
	case Probe:
	}
}

// sortedByRequest lists the table in the order of request ids, which is the order of time.
func sortedByRequest(open map[string]Entry) []Entry {
	all := make([]Entry, 0, len(open))
	for _, key := range slices.Sorted(maps.Keys(open)) {
		all = append(all, open[key])
	}
	return all
}

// withProgress returns an open request's entry with the amounts of a later Progressed entry.
func (e Entry) withProgress(p *Entry) Entry {
	e.At, e.Usage, e.Cost, e.Charged = p.At, p.Usage, p.Cost, p.Charged
	return e
}

// rotate starts the next segment. It syncs the present one first, so that only the last segment can be torn.
func (j *Journal) rotate() error {
	var err error
	if j.syncFailed {
		err = rewrite(j.file, j.synced.Offset, j.end.Offset)
	}
	err = errors.Join(err, j.file.Sync())
	if j.syncFailed = err != nil; j.syncFailed {
		return fmt.Errorf("sync segment %d: %w", j.end.Segment, err)
	}
	return j.startSegment(j.end.Segment + 1)
}

// Failure returns why the journal cannot be written now, or nil. While it is not nil, no request may be admitted that
// spends money.
func (j *Journal) Failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure
}

// End returns where the next entry will be written.
func (j *Journal) End() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end
}

// Appended receives a value after a write that succeeded or failed since the last receive. The goroutine that syncs
// waits for it while everything is synced. It is meant for one receiver.
func (j *Journal) Appended() <-chan struct{} { return j.appended }

// Synced returns the position up to which a power loss costs nothing. Only entries before it may be posted: otherwise
// the ledger could hold a charge that the journal has lost.
func (j *Journal) Synced() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.synced
}

// Close syncs what was appended and ends writing.
func (j *Journal) Close() error {
	err := j.Sync()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		err = errors.Join(err, j.file.Close())
	}
	j.file = nil
	return err
}

// Sync makes everything that was appended survive a power loss. After a failed write it also tests whether the
// journal can be written again.
func (j *Journal) Sync() error {
	if j.Failure() != nil {
		if err := j.Append(Entry{Kind: Probe}); err != nil {
			return err
		}
	}
	j.mu.Lock()
	file, end, from, retry := j.file, j.end, j.synced.Offset, j.syncFailed
	idle := file == nil || end == j.synced
	j.mu.Unlock()
	if idle {
		return nil
	}
	var err error
	if retry {
		err = rewrite(file, from, end.Offset)
	}
	err = errors.Join(err, file.Sync())
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.end.Segment != end.Segment {
		return nil // the next segment was started meanwhile, which synced this one
	}
	if j.syncFailed = err != nil; j.syncFailed {
		j.failure = fmt.Errorf("sync segment %d: %w", end.Segment, err)
		return j.failure
	}
	if j.synced.Before(end) { // a concurrent Sync that started later may have finished first
		j.synced = end
	}
	if retry {
		j.failure = nil // the failure was the previous sync's
	}
	return nil
}

// rewrite reads a range and writes the same bytes again. After a failed fsync the kernel marks the pages clean and
// would not write them another time.
func rewrite(file File, from, to int64) error {
	data := make([]byte, to-from)
	if _, err := file.ReadAt(data, from); err != nil {
		return err
	}
	return write(file, data, from)
}
