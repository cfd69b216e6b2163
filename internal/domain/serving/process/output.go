package process

import (
	"io"
	"os"

	"sovereign/internal/domain/serving"
)

// output returns the end of a replica's output, and whether there was more before.
func (r *replica) output() ([]byte, bool) {
	from, err := os.Open(r.log())
	if err != nil {
		return nil, false
	}
	defer func() { _ = from.Close() }()
	size, err := from.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, false
	}
	at := max(0, size-keptTail)
	text := make([]byte, size-at)
	n, _ := from.ReadAt(text, at) // a file that was trimmed meanwhile has less
	return text[:n], at > 0
}

// tail returns the last lines of a replica's output.
func (r *replica) tail() []string { return serving.LastLines(r.output()) }

// trim keeps the file of a replica's output within its bound. The engine writes at the file's end, wherever that is; what
// it writes in the moment of the trimming may stand before what is kept.
func (b *Backend) trim(r *replica) {
	info, err := os.Stat(r.log())
	if err != nil || info.Size() <= b.LogBytes {
		return
	}
	end, _ := r.output()
	to, err := os.OpenFile(r.log(), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	if err := to.Truncate(0); err != nil {
		b.Log.Error("cannot trim the output of an engine", "replica", r.ID, "err", err)
		return
	}
	_, _ = to.Write(end) // without it, the last lines are fewer
}
