package endpoint

import (
	"context"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
)

// fetchAgain is when files that could not be fetched are fetched again.
const fetchAgain = 30 * time.Second

// Folders brings the files of versions to where engines read them.
type Folders interface {
	// Get returns the folder of a version's files. It is kept until release is called.
	Get(ctx context.Context, ws tenant.ID, versionID string) (folder string, release func(), err error)
}

// files fetches the files of model versions, each beside the loop: they may take minutes.
type files struct {
	mu  sync.Mutex
	all map[string]*fetch // by endpoint
}

// A fetch is the files of one endpoint's version.
type fetch struct {
	folder  string     // where they are; empty until then
	release func()     // lets go of them
	err     error      // why they are not there
	again   clock.Time // when to try it again
	runs    bool
}

// folder returns where the files of an endpoint's version are. Empty, if they are not there yet: they are being
// fetched. Then problem may say why they were not there before.
func (s *Store) folder(ctx context.Context, e *record) (folder, problem string) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	f := s.files.all[e.ID]
	if f == nil {
		f = &fetch{}
		s.files.all[e.ID] = f
	}
	if f.folder == "" && !f.runs && s.now() >= f.again {
		f.runs = true
		go s.fetch(ctx, *e, f)
	}
	if f.err != nil {
		problem = "the model's files cannot be fetched; it is tried again"
	}
	return f.folder, problem
}

func (s *Store) fetch(ctx context.Context, e record, f *fetch) {
	var folder string
	var release func()
	err := panics.Call(s.Log, "fetching the files of an endpoint", func() (err error) {
		folder, release, err = s.Folders.Get(ctx, e.Workspace, e.ModelVersionID)
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("cannot fetch the files of a dedicated endpoint; it is tried again", "endpoint", e.ID, "err", err)
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	f.folder, f.release, f.err, f.again, f.runs = folder, release, err, s.now().Add(fetchAgain), false
	s.wake()
}

// release lets go of an endpoint's files, when nothing of it runs.
func (s *Store) release(e *record) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	f := s.files.all[e.ID]
	if f == nil || f.runs {
		return
	}
	if f.release != nil {
		f.release()
	}
	delete(s.files.all, e.ID)
}
