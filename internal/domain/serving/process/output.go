package process

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

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

// trim keeps what a replica's output takes of the disk within its bound. It punches a hole into the file's beginning,
// so that the engine writes on at the end and nothing is lost between. A file system without holes loses some lines.
func (b *Backend) trim(r *replica) {
	var info unix.Stat_t
	if err := unix.Stat(r.log(), &info); err != nil || info.Blocks*512 <= b.LogBytes {
		return
	}
	to, err := os.OpenFile(r.log(), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(to.Fd()), hole, 0, max(1, info.Size-keptTail)); err == nil {
		return
	}
	end, _ := r.output()
	if err := to.Truncate(0); err != nil {
		b.Log.Error("cannot trim the output of an engine", "replica", r.ID, "err", err)
		return
	}
	_, _ = to.Write(end) // without it, the last lines are fewer
}
