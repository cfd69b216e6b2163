package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/serving"
)

// A record is what is kept of a replica on the disk, so that a server that starts finds it again. It is written before
// the engine may run.
type record struct {
	ID        string
	Spec      serving.Spec // without its number of replicas
	PID       int
	Start     uint64 // when the process began, in ticks since the machine's boot: a pid may be another process's later
	Boot      string // the boot of the machine
	URL       string // of the machine's address and port
	API       string
	Health    string
	HealthyBy clock.Time // or it has failed
	Devices   []string   // GPUs
	Cgroup    string     // its folder; empty for none

	StartedAt, ReadyAt, EndedAt clock.Time
	Asked, Ended                bool
	Reason                      string
	Lines                       []string
}

// wanted is what is kept of a deployment.
type wanted struct {
	Spec    serving.Spec
	Removed bool
}

// The names of files in the folder of a deployment.
const (
	wantedFile = "deployment.json"
	ending     = ".json"
	logEnding  = ".log"
)

// keep writes a value to a file, whole or not at all.
func keep(at string, value any) error {
	text, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("keep the record of an engine: %w", err)
	}
	to, err := os.OpenFile(at+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // our own folder
	if err != nil {
		return fmt.Errorf("keep the record of an engine: %w", err)
	}
	_, err = to.Write(text)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(at+".new", at)
	}
	if err != nil {
		return fmt.Errorf("keep the record of an engine: %w", err)
	}
	return nil
}

// kept reads a file that keep has written.
func kept(at string, value any) error {
	text, err := os.ReadFile(at) //nolint:gosec // our own folder
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", at, err)
	}
	return nil
}

// load reads the deployments that earlier servers have left.
func (b *Backend) load() error {
	folders, err := os.ReadDir(b.runs())
	if err != nil {
		return fmt.Errorf("read the folder of engines: %w", err)
	}
	for _, folder := range folders {
		if err := b.loadOne(folder.Name()); err != nil {
			return err
		}
	}
	return nil
}

// loadOne reads a deployment. A folder without its file is of one that was not applied, or is gone.
func (b *Backend) loadOne(name string) error {
	at := filepath.Join(b.runs(), name)
	d := &deployment{name: name, folder: at}
	err := kept(filepath.Join(at, wantedFile), &d.wanted)
	if errors.Is(err, os.ErrNotExist) {
		return os.RemoveAll(at)
	}
	if err != nil {
		return err
	}
	files, err := os.ReadDir(at)
	if err != nil {
		return fmt.Errorf("read the folder of an engine: %w", err)
	}
	for _, file := range files {
		id, ok := strings.CutSuffix(file.Name(), ending)
		if !ok || file.Name() == wantedFile {
			continue
		}
		r := &replica{d: d}
		if err := kept(filepath.Join(at, file.Name()), &r.record); err != nil {
			return err
		}
		if r.ID != id {
			return fmt.Errorf("%s has the replica %q", filepath.Join(at, file.Name()), r.ID)
		}
		d.replicas = append(d.replicas, r)
	}
	b.deployments[name] = d
	return d.removeTorn(files)
}

// removeTorn removes the files of replicas whose server was killed before it wrote their records.
func (d *deployment) removeTorn(files []os.DirEntry) error {
	whole := map[string]bool{wantedFile: true}
	for _, r := range d.replicas {
		whole[filepath.Base(r.file())], whole[filepath.Base(r.log())] = true, true
	}
	for _, file := range files {
		if !whole[file.Name()] {
			if err := os.Remove(filepath.Join(d.folder, file.Name())); err != nil {
				return fmt.Errorf("remove a file of an engine: %w", err)
			}
		}
	}
	return nil
}

func (r *replica) file() string { return filepath.Join(r.d.folder, r.ID+ending) }
func (r *replica) log() string  { return filepath.Join(r.d.folder, r.ID+logEnding) }

// save keeps the record.
func (r *replica) save() error { return keep(r.file(), &r.record) }
