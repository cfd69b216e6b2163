package journal

import (
	"errors"
	"fmt"
	"slices"
)

// setAsideName is the file, beside the segments, of the charges that the ledger cannot hold. Its records are those of a
// segment. Nothing removes it: the charges in it are money that an operator has to look at.
const setAsideName = "set-aside"

// SetAside appends charges that cannot be posted to a file beside the segments. When it returns, they survive a power
// loss. A charge may be set aside twice, when the transaction that skipped it is repeated.
func (j *Journal) SetAside(charges []*Charge) error {
	_, end, err := j.readSetAside()
	if err != nil {
		return err
	}
	var records []byte
	for _, c := range charges {
		records = appendEntry(records, &Entry{Kind: Settled, Charge: *c})
	}
	file, err := j.disk.Open(setAsideName)
	if err != nil {
		return fmt.Errorf("set charges aside: %w", err)
	}
	_, err = file.WriteAt(records, end)
	if err = errors.Join(err, file.Sync(), file.Close(), j.disk.Sync()); err != nil {
		return fmt.Errorf("set charges aside: %w", err)
	}
	return nil
}

// ReadSetAside returns the charges that were set aside, each once.
func (j *Journal) ReadSetAside() ([]Charge, error) {
	entries, _, err := j.readSetAside()
	var all []Charge
	for i := range entries {
		same := func(c Charge) bool { return c.Request == entries[i].Request && c.Workspace == entries[i].Workspace }
		if !slices.ContainsFunc(all, same) {
			all = append(all, entries[i].Charge)
		}
	}
	return all, err
}

// readSetAside returns the records of the file, and where they end. What follows is a write that never returned.
func (j *Journal) readSetAside() (entries []Entry, end int64, err error) {
	names, err := j.disk.List()
	if err != nil || !slices.Contains(names, setAsideName) { // Open would create it
		return nil, 0, err
	}
	file, err := j.disk.Open(setAsideName)
	if err != nil {
		return nil, 0, fmt.Errorf("read the charges that were set aside: %w", err)
	}
	defer func() { _ = file.Close() }()
	size, err := file.Size()
	if err != nil {
		return nil, 0, fmt.Errorf("read the charges that were set aside: %w", err)
	}
	data := make([]byte, size)
	if _, err := file.ReadAt(data, 0); size > 0 && err != nil {
		return nil, 0, fmt.Errorf("read the charges that were set aside: %w", err)
	}
	for texts := map[string]string{}; int64(len(data)) > end; {
		e, n, err := decodeEntry(data[end:], texts)
		if errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the charges that were set aside: %w", err)
		}
		entries, end = append(entries, e), end+int64(n)
	}
	return entries, end, nil
}
