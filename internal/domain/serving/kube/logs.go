package kube

import (
	"context"
	"time"

	"sovereign/internal/base/panics"
	"sovereign/internal/domain/serving"
)

// logTime bounds how long the end of a replica waits for its last lines.
const logTime = 10 * time.Second

// What a node gives of a log may begin within a line if it is longer: it parts lines of 16 KiB, and leaves at most 2
// KiB in a pod's status.
const (
	tailWhole    = 16 << 10
	messageWhole = 2000
)

// readLogs begins to read the last lines of pods that ended by themselves, each once.
func (b *Backend) readLogs(ctx context.Context, lives []*life) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range lives {
		uid := l.object.Meta.UID
		if _, read := b.lines[uid]; read || b.reading[uid] || l.replica.Asked || l.replica.Phase != serving.Ended {
			continue
		}
		b.reading[uid] = true
		b.done.Go(func() {
			defer panics.Contain(b.config.Log, "the log of a pod")
			b.readLog(ctx, l)
		})
	}
}

// readLog reads the last lines of a pod. If its node does not give them, they are what the container left behind.
func (b *Backend) readLog(ctx context.Context, l *life) {
	within, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	whole := tailWhole
	text, err := b.client.Log(within, l.object.Meta.Name, containerName, serving.MaxLines)
	if err != nil {
		b.config.Log.Debug("the log of an engine cannot be read", "pod", l.object.Meta.Name, "err", err)
		text, whole = l.message, messageWhole
	}
	lines := serving.LastLines([]byte(text), len(text) > whole)
	b.mu.Lock()
	delete(b.reading, l.object.Meta.UID)
	b.lines[l.object.Meta.UID] = lines
	b.mu.Unlock()
	b.signal()
}
