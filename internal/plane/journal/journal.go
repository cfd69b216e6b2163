// Package journal is the flight recorder of money: an append-only file on the local disk that says what every request
// cost before its caller has seen the last byte. It stands between memory, which a crash loses, and the ledger, which is
// a database and may be slow or away.
//
// Two promises, kept apart. Process-durable: when Append has returned, the entry survives kill -9, because the kernel
// has it. Machine-durable: a power loss costs at most what was appended since the last Sync, which a timer calls.
//
// A segment begins by stating again every request that was open when it was begun, so that one segment, read from its
// start, tells everything about the requests that it mentions.
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

// A Position is a place in the journal, between two entries.
type Position struct {
	Segment int64
	Offset  int64
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Offset < q.Offset
}

// segmentSize is the usual Limit.
const segmentSize = 64 << 20

// A Journal is written by many and read by whoever posts it. Make it with Open, recover what it holds, then Begin.
type Journal struct {
	ID    string
	Limit int64 // of a segment, in bytes: over it a new one is begun
	Torn  int64 // bytes at the end of the last segment that are no whole entry: a write that never returned
	disk  Disk
	stir  chan struct{}

	mu      sync.Mutex
	pending []byte // encoded, to be written by the next leader
	queue   []*waiter
	entries []Entry // of pending, for the table of open requests
	writing bool

	// What follows belongs to the leader, and is read by others under mu.
	file   File
	buffer []byte // the last batch, to be used again
	spare  struct {
		entries []Entry
		queue   []*waiter
	}
	end     Position
	synced  Position
	open    map[string]Entry
	failure error // of the last write or sync; nil when it worked
	stale   int64 // a segment that was begun in vain and could not be removed
	uncut   bool  // the last write failed, and what it left could not be cut off
	again   bool  // the last sync failed: the kernel may have forgotten what it was told
}

type waiter struct {
	done chan bool // true: you lead; false: it is done
	err  error
}

// waiters are used again: when Append returns, nobody knows its waiter any more.
var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan bool, 1)} }}

// Open finds the journal in a folder, or makes one. It is not written until Begin.
func Open(disk Disk) (*Journal, error) {
	j := &Journal{disk: disk, open: map[string]Entry{}, Limit: segmentSize, stir: make(chan struct{}, 1)}
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

// Segments lists the numbers of the segments there are, in order.
func (j *Journal) Segments() ([]int64, error) {
	all, err := Numbered(j.disk, segmentName)
	if err != nil {
		return nil, fmt.Errorf("list the journal: %w", err)
	}
	return all, nil
}

// findEnd reads the last segment up to what is no whole entry, and syncs what a killed process left unsynced.
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

// Begin starts writing the segment after the last.
func (j *Journal) Begin() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.begin(j.end.Segment + 1)
}

func (j *Journal) begin(segment int64) error {
	file, err := j.disk.Open(segmentName(segment))
	if err != nil {
		return fmt.Errorf("begin segment %d: %w", segment, err)
	}
	var head []byte
	for _, e := range sorted(j.open) {
		head = appendEntry(head, &e)
	}
	if err := errors.Join(file.Truncate(0), write(file, head, 0), file.Sync(), j.disk.Sync()); err != nil {
		j.stale = segment
		return errors.Join(fmt.Errorf("begin segment %d: %w", segment, err), file.Close(), j.clear())
	}
	if j.file != nil {
		_ = j.file.Close() // it was synced
	}
	j.file, j.end = file, Position{segment, int64(len(head))}
	j.synced = j.end
	return nil
}

// clear removes a segment that was begun in vain. Until it is gone nothing is written: the next start would take what it
// restates for requests that are still open.
func (j *Journal) clear() error {
	if j.stale == 0 {
		return nil
	}
	if err := j.disk.Remove(segmentName(j.stale)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := j.disk.Sync(); err != nil {
		return err
	}
	j.stale = 0
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

// Append writes entries, all or none, and returns when the kernel has them. Whoever finds nobody writing writes for all
// who came meanwhile: one write per batch, and no goroutine to wake.
func (j *Journal) Append(entries ...Entry) error {
	w, _ := waiters.Get().(*waiter)
	defer waiters.Put(w)
	j.mu.Lock()
	before := len(j.pending)
	for i := range entries {
		start := len(j.pending)
		if j.pending = appendEntry(j.pending, &entries[i]); len(j.pending)-start > frame+maxPayload {
			j.pending = j.pending[:before]
			j.mu.Unlock()
			return errLong
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
	j.lead()
	if len(j.queue) > 0 {
		j.queue[0].done <- true // who waits longest leads next, so that nobody writes for others for ever
	} else {
		j.writing = false
	}
	j.mu.Unlock()
	return w.err
}

// errLong says that an entry is one that reading would take for damage.
var errLong = fmt.Errorf("an entry is longer than %d bytes", maxPayload)

var errClosed = errors.New("the journal is closed")

// lead writes what is pending, with mu held before and after. The leader's own entries are among it.
func (j *Journal) lead() {
	batch, entries, queue := j.pending, j.entries, j.queue
	j.pending, j.entries, j.queue = j.buffer[:0], j.spare.entries[:0], j.spare.queue[:0]
	err := errClosed
	if j.file != nil {
		file, at := j.file, j.end.Offset
		j.mu.Unlock()
		err = j.put(file, batch, at)
		j.mu.Lock()
	}
	j.wrote(int64(len(batch)), entries, err)
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

// put writes a batch, or leaves nothing of it: what a failed write left behind must be cut off before the next, or a
// later reading could take it for entries.
func (j *Journal) put(file File, batch []byte, at int64) error {
	if err := j.clear(); err != nil {
		return err
	}
	if j.uncut {
		if err := file.Truncate(at); err != nil {
			return err
		}
		j.uncut = false
	}
	err := write(file, batch, at)
	if err != nil {
		cut := file.Truncate(at)
		j.uncut = cut != nil
		err = errors.Join(err, cut)
	}
	return err
}

func (j *Journal) wrote(size int64, entries []Entry, err error) {
	select {
	case j.stir <- struct{}{}:
	default: // nobody has looked since the last write
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
		err = j.rotate() // what was written is written; the next write tries again
	}
	if err != nil || !j.again { // what could not be synced is not safe because something else could be written
		j.failure = err
	}
}

// track keeps a table of the requests that are open.
func track(open map[string]Entry, e *Entry) {
	switch e.Kind {
	case Opened:
		open[e.Request] = *e
	case Progressed:
		if was, ok := open[e.Request]; ok {
			open[e.Request] = was.at(e)
		}
	case Settled:
		delete(open, e.Request)
	case Marked:
	}
}

// sorted is the table in the order of the ids, which is that of time.
func sorted(open map[string]Entry) []Entry {
	all := make([]Entry, 0, len(open))
	for _, key := range slices.Sorted(maps.Keys(open)) {
		all = append(all, open[key])
	}
	return all
}

// at is an open request after progress.
func (e Entry) at(p *Entry) Entry {
	e.At, e.Usage, e.Cost, e.Charged = p.At, p.Usage, p.Cost, p.Charged
	return e
}

// rotate begins the next segment. The one before is whole and synced first, so that only the last can be torn.
func (j *Journal) rotate() error {
	var err error
	if j.again {
		err = rewrite(j.file, j.synced.Offset, j.end.Offset)
	}
	err = errors.Join(err, j.file.Sync())
	if j.again = err != nil; j.again {
		return fmt.Errorf("sync segment %d: %w", j.end.Segment, err)
	}
	return j.begin(j.end.Segment + 1)
}

// Failure is why the journal cannot be written now; nil when it can. While it is not nil, nothing new may be spent.
func (j *Journal) Failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure
}

// End is where the next entry will stand.
func (j *Journal) End() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end
}

// Stirred has a value when something was written since one was taken from it, or could not be: whoever syncs may rest until then.
// It is for one reader.
func (j *Journal) Appended() <-chan struct{} { return j.stir }

// Synced is up to where a power loss costs nothing. Only what lies before it may be posted: otherwise a ledger could
// remember what the journal has forgotten.
func (j *Journal) Synced() Position {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.synced
}

// Close ends writing. What was appended is synced.
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

// Sync makes everything that was appended survive a power loss. After a failed write it also tries whether the journal
// can be written again.
func (j *Journal) Sync() error {
	if j.Failure() != nil {
		if err := j.Append(Entry{Kind: Marked}); err != nil {
			return err
		}
	}
	j.mu.Lock()
	file, end, from, again := j.file, j.end, j.synced.Offset, j.again
	idle := file == nil || end == j.synced
	j.mu.Unlock()
	if idle {
		return nil
	}
	var err error
	if again {
		err = rewrite(file, from, end.Offset)
	}
	err = errors.Join(err, file.Sync())
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.end.Segment != end.Segment {
		return nil // a new segment was begun, which synced this one
	}
	if j.again = err != nil; j.again {
		j.failure = fmt.Errorf("sync segment %d: %w", end.Segment, err)
		return j.failure
	}
	if j.synced.Before(end) { // another, that began later, may have ended before
		j.synced = end
	}
	if again {
		j.failure = nil // it was of the sync before
	}
	return nil
}

// rewrite writes a range again as it reads. After a failed sync the kernel takes its pages for clean, and would not try
// to write them another time.
func rewrite(file File, from, to int64) error {
	data := make([]byte, to-from)
	if _, err := file.ReadAt(data, from); err != nil {
		return err
	}
	return write(file, data, from)
}
