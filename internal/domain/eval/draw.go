package eval

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
)

// LogScanner reads logged exchanges in one snapshot.
type LogScanner interface {
	Scan(ctx context.Context, ws tenant.ID, f *logbook.Filters, most int, fn func(*logbook.Scan) error) error
}

// DrawLogs draws logged exchanges as an eval draws its cases: at most one of each question and each conversation,
// spread over the families of prompts. It returns their request ids and expiry, in random order.
func DrawLogs(ctx context.Context, logs LogScanner, ws tenant.ID, f *logbook.Filters, size int, chosen uint64,
) (drawn []logbook.Exchange, err error) {
	with := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("draw"), chosen))
	err = logs.Scan(ctx, ws, f, logbook.MaxPool, func(scan *logbook.Scan) error {
		pool, err := marks(ctx, logSource{scan})
		if err != nil {
			return err
		}
		order, _ := choose(pool, size, with)
		which := slices.Sorted(slices.Values(order))
		place := make(map[int]int, len(order)) // of an index, in the order of the draw
		for rank, index := range order {
			place[index] = rank
		}
		drawn = make([]logbook.Exchange, len(order))
		at := 0
		for row, err := range scan.Requests(ctx, which) {
			if err != nil {
				return err
			}
			drawn[place[which[at]]] = logbook.Exchange{RequestID: row.RequestID, ExpiresAt: row.ExpiresAt}
			at++
		}
		return nil
	})
	return drawn, err
}
