package eval

import (
	"sync"

	"sovereign/internal/domain/calibration"
	"sovereign/internal/store/job"
)

// recent has the figures of evals that are not done, as they were last counted: counting a large eval takes most of a
// second, and whoever waits for one asks often. They are counted anew when a hundredth of the cases has been added, so
// that a run is counted some hundred times at most, however often it is read. Small runs are always counted.
type recent struct {
	mu  sync.Mutex
	all map[string]counted // by eval
}

// counted are figures, and what they were counted from.
type counted struct {
	figures     Figures
	done        int64
	status      job.Status
	certificate string
}

// maxRecent bounds the figures that are kept in memory.
const maxRecent = 256

// certificateID returns the id of a certificate, or "" for none.
func certificateID(c *calibration.Certificate) string {
	if c == nil {
		return ""
	}
	return c.ID
}

// find returns the figures of an eval if they were counted recently. They are shared, and must not be changed.
func (k *recent) find(r *record, c *calibration.Certificate) (Figures, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, ok := k.all[r.ID]
	done := r.Done
	ok = ok && last.status == r.Status && last.certificate == certificateID(c) && done-last.done < done/100
	return last.figures, ok
}

// keep keeps figures that were counted after r was read.
func (k *recent) keep(r *record, c *calibration.Certificate, f Figures) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= maxRecent {
		k.all = map[string]counted{}
	}
	k.all[r.ID] = counted{f, r.Done, r.Status, certificateID(c)}
}
