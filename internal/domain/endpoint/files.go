package endpoint

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/base/panics"
)

// fetchAgain is when files that could not be fetched are fetched again.
const fetchAgain = 30 * time.Second

// files fetches the files of model versions, each beside the loop: they may take minutes.
type files struct {
	mu  sync.Mutex
	all map[string]*fetch // by endpoint
}

// A fetch is the files of one endpoint's version.
type fetch struct {
	folder string // where they are; empty until then
	err    error  // why they are not
	again  time.Time
	runs   bool
}

// folder returns where the files of an endpoint's version are. Empty, if they are not there yet: they are being fetched.
// Then problem may say why they were not there before.
func (s *Store) folder(ctx context.Context, e *record) (folder, problem string) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	f := s.files.all[e.ID]
	if f == nil {
		f = &fetch{}
		s.files.all[e.ID] = f
	}
	if f.folder == "" && !f.runs && time.Now().After(f.again) {
		f.runs = true
		go s.fetch(ctx, *e, f)
	}
	if f.err != nil {
		problem = "the model's files cannot be fetched; it is tried again"
	}
	return f.folder, problem
}

func (s *Store) fetch(ctx context.Context, e record, f *fetch) {
	folder := ""
	err := panics.Call(s.Log, "fetching the files of an endpoint", func() (err error) {
		folder, err = s.Folder(ctx, e.Workspace, e.ModelVersionID)
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("cannot fetch the files of a dedicated endpoint; it is tried again", "endpoint", e.ID, "err", err)
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	f.folder, f.err, f.again, f.runs = folder, err, time.Now().Add(fetchAgain), false
	s.wake()
}
